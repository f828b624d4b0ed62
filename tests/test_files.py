"""Atomic writing: all of a file or none of it, and one line when the system refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mechint.errors import RunError
from mechint.system.files import make_directory, read_json_lines, replacing, write_bytes, write_text


def test_written_whole_with_directories_on_the_way(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "größer")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "größer".encode()
    assert [entry.name for entry in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_an_error_leaves_the_old_content_and_nothing_beside(tmp_path):
    place = tmp_path / "run.json"
    write_text(place, "old")
    with pytest.raises(ZeroDivisionError), replacing(place) as beside:
        beside.write_text("half")
        raise ZeroDivisionError
    assert place.read_text() == "old" and [entry.name for entry in tmp_path.iterdir()] == [
        "run.json"
    ]


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path):
    place = tmp_path / "run.json"
    write_text(place, "old")
    with replacing(place) as beside:
        beside.write_text("new")
        assert place.read_text() == "old"
    assert place.read_text() == "new"


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("directory", r"directory: cannot be written: it is a directory, expected a file"),
        ("file/below", r"cannot be written: .*a file, not a directory"),
    ],
)
def test_refusals_are_one_line(tmp_path, place, text):
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=text) as caught:
        write_bytes(tmp_path / place, b"")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_named_and_a_device_is_not_replaced():
    with pytest.raises(RunError, match="/dev/full: cannot be written: the disk is full"):
        write_text("/dev/full", "text")
    assert Path("/dev/full").is_char_device()


def test_a_full_disk_at_the_flush_leaves_the_old_content(tmp_path, monkeypatch):
    place = tmp_path / "run.json"
    write_text(place, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="the disk is full"):
        write_text(place, "new")
    assert place.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("letter", ["a", "ü", "報", "😀"])
def test_the_longest_name_that_the_system_takes_is_written(tmp_path, letter):
    """Systems count bytes, of which a letter has up to four."""
    longest = os.pathconf(tmp_path, "PC_NAME_MAX") // len(letter.encode())
    write_text(tmp_path / (letter * longest), "text")
    assert [entry.name for entry in tmp_path.iterdir()] == [letter * longest]
    assert (tmp_path / (letter * longest)).read_text() == "text"
    with pytest.raises(RunError, match="cannot be written: the name is too long"):
        write_text(tmp_path / (letter * (longest + 1)), "text")


def test_a_directory_is_made_once_and_never_over_a_file(tmp_path):
    assert make_directory(tmp_path / "a" / "b") == make_directory(tmp_path / "a" / "b")
    write_text(tmp_path / "file", "")
    with pytest.raises(RunError, match="file: it is a file, expected a directory"):
        make_directory(tmp_path / "file")


def test_json_lines_that_are_whole_are_read(tmp_path):
    file = tmp_path / "rows.jsonl"
    assert read_json_lines(file) == []
    file.write_bytes(b'{"step": 1}\n[2]\n{"step": 2, "x"\n\xff\n{"step": 3}\n{"st')
    assert read_json_lines(file) == [{"step": 1}, {"step": 3}]


def test_two_writes_of_a_file_at_once_do_not_meet(tmp_path):
    place = tmp_path / "run.json"
    with replacing(place) as first, replacing(place) as second:
        first.write_text("first")
        second.write_text("second")
    assert place.read_text() == "first"  # whose block ended last
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]
