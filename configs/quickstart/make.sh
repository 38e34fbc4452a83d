#!/bin/bash
# Remakes everything the quickstart ships: texts, tokenizer, questions, and the pretrained weights.
# For developers; nobody needs it to use or test the program, since its results are committed.
#
#   configs/quickstart/make.sh [PYTHON]          all of it (about 15 minutes on two cores)
#   configs/quickstart/make.sh --corpus [PYTHON] all but the weights
#
# Needs: Debian or Ubuntu (`apt-get download`, `dpkg-deb`, libreadline), cargo, and a Python 3 with
# `tokenizers` and `numpy` (default: python3). Run from anywhere; it works in the repository root.
set -euo pipefail
cd "$(dirname "$0")/../.."

what=all
if [ "${1:-}" = --corpus ]; then what=corpus; shift; fi
python=${1:-python3}
here=configs/quickstart
work=runs/quickstart-corpus # git-ignored

"$python" -c 'import tokenizers, numpy' || {
  echo "make.sh: $python lacks tokenizers or numpy; pass a Python that has both" >&2; exit 2; }

# 1. The two public-domain texts, from Debian's packages of them.
mkdir -p "$work/deb"
for package in bible-kjv bible-kjv-text r-cran-janeaustenr; do
  if [ ! -d "$work/deb/$package" ]; then
    (cd "$work/deb" && apt-get download "$package")
    mkdir -p "$work/deb/$package"
    dpkg-deb -x "$work"/deb/"${package}"_*.deb "$work/deb/$package"
  fi
done
# One verse a line: "Ge1:1 In the beginning ...".
"$work/deb/bible-kjv/usr/bin/bible" -f -p "$work/deb/bible-kjv-text/usr/lib" gen1:1-rev22:21 \
  </dev/null >"$work/kjv.txt"

# 2. Rows, tokenizer, config; then the questions, which need only what that has written here.
"$python" "$here/make.py" corpus "$work"
"$python" "$here/questions.py"
[ "$what" = all ] || exit 0

# 3. Pretraining by this very program, then the weights rounded to bf16.
rm -rf runs/quickstart-base "$here/model/model.safetensors"
cargo run --release -- train --config "$here/pretrain.toml"
"$python" "$here/make.py" weights runs/quickstart-base/model
ls -l "$here/model" "$here/text" "$here/data"
