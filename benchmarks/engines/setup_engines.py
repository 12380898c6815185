"""Make the engines' own environment: SGLang, vLLM-Omni and cache-dit on a CPU, with tiny models.

    python benchmarks/engines/setup_engines.py [FOLDER]        (default: .engines)

About 5 minutes and 3.3 GB on two cores (3 GB of it torch and triton). Nothing of the engines is edited:
SGLang's wheel is for Python 3.12, its Python part runs on 3.11, so it is unpacked into the environment. The
stand-ins beside this file supply what only accelerators have; right for structure, not for speed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SGLANG, VLLM, OMNI = "0.5.23", "0.30.0", "0.30.0"
SETUPTOOLS = ("setuptools==80.9.0", "wheel")
PYTHON = "3.11"


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".engines").absolute()
    begin = time.monotonic()
    environment = folder / "env"
    if not (environment / ".complete").exists():
        shutil.rmtree(environment, ignore_errors=True)
        make_environment(environment)
        (environment / ".complete").touch()
    for name in ("Qwen/Qwen-Image", "tiny/Qwen-Image"):
        model = folder / "models" / name
        if not (model / "model_index.json").exists():
            make_model(environment, model, tiniest=name.startswith("tiny"))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"engines ready in {folder}: {size / 1e9:.1f} GB, {time.monotonic() - begin:.0f} s")


def make_environment(environment: Path) -> None:
    """The virtual environment with all packages, and the three engines unpacked into it."""
    subprocess.run([python(), "-m", "venv", environment], check=True)
    site = environment / "lib" / f"python{PYTHON}" / "site-packages"
    pip(environment, "install", "--no-deps", *SETUPTOOLS, "-r", HERE / "packages.txt")
    with tempfile.TemporaryDirectory() as name:
        downloads = Path(name)
        wheel = ("--python-version", "3.12", "--only-binary=:all:")
        pip(environment, "download", "--no-deps", *wheel, "-d", downloads, f"sglang=={SGLANG}")
        pip(environment, "download", "--no-deps", "-d", downloads, f"vllm-omni=={OMNI}")
        pip(
            environment,
            *("download", "--no-deps", "--no-build-isolation", "--no-binary", "vllm"),
            *("-d", downloads, f"vllm=={VLLM}"),
            VLLM_VERSION_OVERRIDE=VLLM,
            VLLM_TARGET_DEVICE="empty",
        )
        for wheel_file in downloads.glob("*.whl"):
            zipfile.ZipFile(wheel_file).extractall(site)
        unpack_vllm(next(downloads.glob("vllm-*.tar.gz")), site)
    for stand_in in (HERE / "stand_ins").iterdir():
        if stand_in.name == "torchvision_cpu":
            shutil.copy(stand_in / "torchvision_beside_cpu_torch.py", site)
            (site / "torchvision_beside_cpu_torch.pth").write_text("import torchvision_beside_cpu_torch\n")
    script(environment / "bin" / "sglang", "sglang.cli.main")


def unpack_vllm(archive: Path, site: Path) -> None:
    """Its Python part, and metadata that names the CPU version: vLLM chooses its platform by that."""
    info = site / f"vllm-{VLLM}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    with tarfile.open(archive) as tar:
        root = f"vllm-{VLLM}"
        members = [member for member in tar.getmembers() if member.name.startswith(f"{root}/vllm/")]
        for member in members:
            member.name = member.name.removeprefix(f"{root}/")
        tar.extractall(site, members=members, filter="data")
        metadata = tar.extractfile(f"{root}/PKG-INFO").read().decode()
        entry_points = tar.extractfile(f"{root}/vllm.egg-info/entry_points.txt").read()
    (info / "METADATA").write_text(metadata.replace(f"\nVersion: {VLLM}\n", f"\nVersion: {VLLM}+cpu\n", 1))
    (info / "entry_points.txt").write_bytes(entry_points)


def script(path: Path, module: str) -> None:
    """What pip would make for the package's console script."""
    path.write_text(
        f"#!{path.parent / 'python'}\nimport sys\nfrom {module} import main\n"
        'if __name__ == "__main__":  # workers are spawned and import this again\n    sys.exit(main())\n'
    )
    path.chmod(0o755)


def make_model(environment: Path, folder: Path, *, tiniest: bool) -> None:
    """A tiny Qwen-Image, made with stepscope's own preset in the engines' environment."""
    command = [
        environment / "bin" / "python",
        HERE / "make_model.py",
        folder,
        *(["--tiniest"] if tiniest else []),
    ]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})


def pip(environment: Path, *arguments: str | Path, **variables: str) -> None:
    command = [environment / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True, env={**os.environ, **variables})


def python() -> str:
    """A Python that the wheels beside SGLang exist for."""
    found = shutil.which(f"python{PYTHON}")
    if found is None:
        sys.exit(f"python{PYTHON} is needed for the engines' environment and was not found")
    return found


if __name__ == "__main__":
    main()
