# usage: [DEMO=--quick] release_check.sh WHEEL_OR_SDIST [PYTHON]; installs it alone and uses it as a
# newcomer would
set -eu
built=$(realpath "$1")
constraints=$(realpath "$(dirname "$0")/../constraints.txt")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"${2:-python3}" -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet --constraint "$constraints" torch==2.13.0
"$place/env/bin/python" -m pip install --quiet --constraint "$constraints" "$built"

cd "$place"  # where no source tree can be imported in its place
mechint=env/bin/mechint
export OMP_NUM_THREADS=1
unset PYTHONPATH
$mechint --version
$mechint tasks > tasks.txt
$mechint probes > probes.txt
grep -q modular-arithmetic tasks.txt
grep -q fourier probes.txt
$mechint demo ${DEMO:-} --report demo.html  # DEMO=--quick where two minutes are too long
grep -q "chance" demo.html
$mechint train modular-arithmetic --set p=11 --set d_model=32 --set steps=40 --out run
$mechint analyze run --probe lens,norms --out report.html
test -s report.html
env/bin/python - <<'CHECK'
from importlib.metadata import metadata
from pathlib import Path

import mechint
import probes
import tasks

inside = [Path(package.__file__).is_relative_to(Path("env").resolve()) for package in (mechint, probes, tasks)]
assert all(inside), inside
assert metadata("mechint")["License-Expression"] == "MIT"
assert probes.norms(mechint.load("run")).status in ("found", "not found", "abstains")
CHECK
echo "$(basename "$built"): installs, runs its demo, trains and analyzes"
