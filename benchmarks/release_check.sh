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
$mechint examples examples
$mechint demo ${DEMO:-} --report demo.html  # DEMO=--quick where two minutes are too long
grep -q "chance" demo.html
$mechint train modular-arithmetic --set p=11 --set d_model=32 --set steps=40 --set checkpoints=log --out run
$mechint analyze run --probe lens,norms --out report.html
test -s report.html
$mechint analyze examples/models/clock.pt examples/models/pizza.pt > two.txt
grep -qi "clock" two.txt
$mechint explain examples/models/maximum.pt > explained.txt
grep -q "audit: stands" explained.txt
$mechint checkpoint info examples/models/induction.pt > info.txt
$mechint checkpoint convert examples/models/clock.pt clock.safetensors
$mechint sweep modular-arithmetic --set p=7 --set d_model=16 --set steps=20 --over seed=0:2 --out swept > sweep.txt
$mechint reproduce emergence --size smoke --yes > reproduced.txt
$mechint calibrate lens > calibrated.txt
$mechint gallery build run --out gallery
test -s gallery/index.html
env/bin/python - <<'CHECK'
import re
from importlib.metadata import metadata
from pathlib import Path

import mechint
import probes
import studies
import tasks

packages = (mechint, probes, studies, tasks)
homes = [Path(package.__file__).parent for package in packages]
assert all(home.is_relative_to(Path("env").resolve()) for home in homes), homes
assert all((home / "py.typed").is_file() for home in homes), homes
about = metadata("mechint")
assert about["License-Expression"] == "MIT"
page = about.get_payload()
links = re.findall(r"\]\(([^)]*)\)|(?:src|srcset)=\"([^\"]*)\"", page)
relative = [link for pair in links for link in pair if link and not link.startswith(("https://", "#"))]
assert not relative, relative
code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
assert code
for block in code:  # the page's Python, in a folder that has nothing but what was installed
    exec(compile(block, "README", "exec"), {})
assert probes.norms(mechint.load("run")).verdict in ("yes", "no", "unclear")
CHECK
size() { du --summarize --block-size=1M "$1" | cut -f 1; }
libraries=$(env/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
echo "$(basename "$built"): installs, runs its demo and one command of each kind;" \
    "$(size "$libraries") MB in $(env/bin/python -m pip list --format freeze | wc -l) distributions," \
    "of which torch $(size "$libraries/torch") MB and mechint $(size "$libraries/mechint") MB"
