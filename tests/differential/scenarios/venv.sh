# python -m venv, a package installed into it by pip without the network, its entry point run.
# contents: \.pyc$
# names: __pycache__
# timeout: 240
# output: \d+\.\d+s
unset PYTHONPATH
BASE=$($PYTHON -c 'import sys; print(sys._base_executable)')
$BASE -m venv --without-pip bare
bare/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'
$BASE -m venv env
mkdir -p wheel/small wheel/small-1.0.dist-info
printf 'def main():\n    print("small runs")\n' > wheel/small/__init__.py
cd wheel
printf 'Metadata-Version: 2.1\nName: small\nVersion: 1.0\n' > small-1.0.dist-info/METADATA
printf 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n' > small-1.0.dist-info/WHEEL
printf '[console_scripts]\nsmall = small:main\n' > small-1.0.dist-info/entry_points.txt
printf 'small/__init__.py,,\nsmall-1.0.dist-info/METADATA,,\nsmall-1.0.dist-info/WHEEL,,\nsmall-1.0.dist-info/entry_points.txt,,\nsmall-1.0.dist-info/RECORD,,\n' > small-1.0.dist-info/RECORD
$BASE - <<'PY'
import zipfile
with zipfile.ZipFile("../small-1.0-py3-none-any.whl", "w") as out:
    for name in ("small/__init__.py", *(f"small-1.0.dist-info/{n}" for n in ("METADATA", "WHEEL", "entry_points.txt", "RECORD"))):
        out.writestr(zipfile.ZipInfo(name), open(name).read())
PY
cd ..
env/bin/pip install -q --no-index --disable-pip-version-check --no-compile ./small-1.0-py3-none-any.whl
env/bin/small
env/bin/pip list --disable-pip-version-check --format=freeze | grep small
env/bin/pip uninstall -q -y small
ls env/bin
