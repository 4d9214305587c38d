"""Write requirements.lock: the exact version of all that the package, its extras and the group `dev` bring along.

Versions that the lock names already stay, so that a new dependency changes few lines. Arguments name what to renew:
packages, or `all`. Nothing is installed: pip works out what it would install, and says so.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"
HEADER = """\
# The exact versions that `make` and continuous integration install. Written by `make lock`: do not edit.
# Made with the oldest Python that is supported, so that newer ones find their versions here, too.
"""


def main(renew: list[str]) -> None:
    if sys.version_info[:2] != (3, 11):
        sys.exit("The lock is made with Python 3.11, the oldest supported: what suits it suits newer ones, too")
    LOCK.write_text(render(resolve(keep=read_lock(renew))))


def read_lock(renew: list[str]) -> list[str]:
    """The lines of the lock but for those to renew."""
    if not LOCK.exists() or "all" in renew:
        return []
    pins = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    return [pin for pin in pins if pin.partition("==")[0] not in {normalize(name) for name in renew}]


def resolve(keep: list[str]) -> dict[str, str]:
    """What pip would install into an empty environment: version by name."""
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder, "constraints.txt"), Path(folder, "report.json")
        constraints.write_text("\n".join(keep))
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--constraint", str(constraints), "--report", str(report)]
        command += ["--editable", ".", "--group", "dev", "pip"]
        if subprocess.run(command, cwd=ROOT).returncode:
            sys.exit("No versions fit: where the lock stands in the way of a new range, make lock RENEW=<name>")
        packages = [entry["metadata"] for entry in json.loads(report.read_text())["install"]]
    return {normalize(package["name"]): package["version"] for package in packages if package["name"] != "ontologia"}


def render(versions: dict[str, str]) -> str:
    return HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


main(sys.argv[1:])
