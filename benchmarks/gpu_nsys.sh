#!/usr/bin/env bash
# Nsight Systems on steps 5:10 of full Qwen-Image (random weights), on a machine that has a GPU but no nsys.
#
#     bash benchmarks/gpu_nsys.sh OUT
#
# .nsys/nsys.tar.xz holds the target part of Debian trixie's nsight-systems (2023.4.4), packed by
# benchmarks/pack_nsys.sh; .whl/ holds the Python packages that the machine lacks. Both are optional: what is
# installed is used then. The target part leaves a .qdstrm (raw capture); it comes back in pieces, and
#     cat OUT/qwen.qdstrm.xz.* | xz -d > qwen.qdstrm && QdstrmImporter -i qwen.qdstrm -o qwen.nsys-rep
# makes the report where the host part is installed. Then: stepscope report qwen.nsys-rep
# STEPSCOPE_ARGUMENTS replaces the arguments of generate, for trying the script without a GPU.
set -uo pipefail
cd "$(dirname "$0")/.."
OUT=${1:?give a folder for the results}
WORK=$(mktemp -d)
ARGUMENTS=${STEPSCOPE_ARGUMENTS:---model-path Qwen/Qwen-Image --load-format dummy --num-inference-steps 20 --true-cfg-scale 4.0 --height 1024 --width 1024}
mkdir -p "$OUT"
exec > >(tee "$OUT/log.txt") 2>&1

if ls .whl/*.whl > /dev/null 2>&1; then
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$WORK/site" .whl/*.whl
fi
export PYTHONPATH="$PWD/src:$WORK/site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
NSYS=nsys
if [ -f .nsys/nsys.tar.xz ]; then
  python3 -c "import sys, tarfile; tarfile.open('.nsys/nsys.tar.xz').extractall('$WORK', filter='fully_trusted')"
  NSYS=$WORK/target-linux-x64/nsys
fi
echo "== $($NSYS --version)"; nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
python3 -c "import torch, nvtx, importlib.metadata as m; print('torch', torch.__version__, 'nvtx', m.version('nvtx'))"

# A program of a second first: does this nsys trace CUDA with this driver at all?
cat > "$WORK/control.py" <<'PYTHON'
import time, nvtx, torch
time.sleep(0.5)
x = torch.ones(2048, 2048, device="cuda" if torch.cuda.is_available() else "cpu")
with nvtx.annotate("control", domain="stepscope"):
    for _ in range(10):
        x = x @ x / 2048
    if x.is_cuda:
        torch.cuda.synchronize()
time.sleep(0.5)
PYTHON
echo "== control"
"$NSYS" profile --trace=cuda,nvtx --sample=none --cpuctxsw=none --force-overwrite=true -o "$WORK/control" \
  python3 "$WORK/control.py"
echo "exit $?"

echo "== steps 5:10"
# shellcheck disable=SC2086  # the arguments are words
timeout 480 python3 -m stepscope nsys --nsys "$NSYS" --steps 5:10 -o "$WORK/qwen" -- generate \
  --prompt "A Logo With Bold Large Text: SGL Diffusion" --seed 0 --no-save-output \
  --perf-dump-path "$OUT/perf.json" $ARGUMENTS
echo "exit $?"

ls -la "$WORK" "$WORK"/*.qdstrm "$WORK"/*.nsys-rep 2> /dev/null
for file in "$WORK"/{control,qwen}.{qdstrm,nsys-rep}; do
  if [ -f "$file" ]; then
    python3 -c "import lzma, shutil, sys; shutil.copyfileobj(open(sys.argv[1], 'rb'), lzma.open(sys.argv[2], 'w', preset=3))" \
      "$file" "$file.xz"
    split -b 15M -d -a 1 "$file.xz" "$OUT/$(basename "$file").xz."
  fi
done
ls -la "$OUT"
rm -rf "$WORK"
