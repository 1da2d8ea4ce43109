"""Ways in which ordinary programs read a file that they were not given to read: NAME: COMMAND lines, a shell's each.

`$S` is the file. The first word of the name is the program that must be installed. Each command, run natively, puts
what the file holds on its outputs or into a file beside it, decoded where it encodes.
"""

from __future__ import annotations

CASES = r"""
ar: ar rc o.a "$S" && ar p o.a
as: as "$S"
as .incbin: printf '.incbin "%s"\n' "$S" | as -o o - && strings o
awk: awk 1 "$S"
awk getline: awk -v f="$S" 'BEGIN { while ((getline l < f) > 0) print l }'
base32: base32 "$S" | base32 -d
base64: base64 "$S" | base64 -d
bash: bash "$S"
bash -v: bash -nv "$S"
bash .: bash -c '. "$S"'
bash BASH_ENV: BASH_ENV="$S" bash -c :
bash --rcfile: bash --rcfile "$S" -i -c true </dev/null
bash mapfile: bash -c 'mapfile x < "$S"; echo "${x[@]}"'
bash history: bash -c 'set -o history; history -r "$S"; history'
bash redirection: bash -c 'exec 5<>"$S"; cat <&5'
busybox awk: busybox awk 1 "$S"
busybox uuencode: busybox uuencode -m "$S" x | busybox uudecode -o -
busybox xxd: busybox xxd -p "$S" | busybox xxd -r -p
bzip2: bzip2 -c "$S" | bzip2 -dc
c++filt: c++filt < "$S"
cat /dev/fd: cat /dev/fd/5 5<"$S"
cmake -P: cmake -P "$S"
cmake -C: cmake -C "$S" .
cmake file(): printf 'file(READ $ENV{S} x)\nmessage("${x}")' > x && cmake -P x
cmp: cmp -l "$S" /dev/zero | awk '{ printf "%c", int($2 / 100) * 64 + int($2 / 10) % 10 * 8 + $2 % 10 }'
column: column "$S"
comm: comm "$S" /dev/null
cp: cp "$S" o
cp --attributes: cp -a --reflink=auto "$S" o
cp link: ln -s "$S" l && cp -L l o
cp recursive: cp -r "${S%/*}" o
cpp: cpp -P "$S"
csplit: csplit -s "$S" 1
curl file: curl -s "file://$S"
curl -K: curl -K "$S"
curl -T: curl -s -T "$S" "file://$PWD/o"
cut: cut -c1- "$S"
date -f: date -f "$S"
dd: dd if="$S" of=o bs=1
dd by descriptor: dd if=/proc/self/fd/5 of=o 5<"$S"
diff: diff "$S" /dev/null
diff -y: diff -y "$S" /dev/null
diff3: diff3 "$S" /dev/null /dev/null
du --files0-from: du --files0-from="$S"
env -S: env -S "cat $S"
ex: ex -sc 'w! o|q!' "$S"
expand: expand "$S"
factor: factor < "$S"
file -f: file -f "$S"
file -m: file -m "$S" /dev/null
find -exec: find "$S" -exec cat {} +
find -files0-from: find -files0-from "$S"
fmt: fmt "$S"
fold: fold "$S"
gcc @file: gcc @"$S"
gcc -include: echo 'int x;' | gcc -E -P -include "$S" -
gcc -x c: gcc -x c "$S"
gcc -E: gcc -E -x c "$S"
gcc -x assembler: gcc -c -x assembler "$S"
gcc incbin: printf 'asm(".incbin \\"%s\\"");' "$S" | gcc -c -o o -x c - && strings o
gcc -T: echo 'int main;' | gcc -x c - -Wl,@"$S"
git diff --no-index: git diff --no-index /dev/null "$S"
git hash-object: git init -q . && git cat-file -p "$(git hash-object -w "$S")"
git config -f: git config -f "$S" -l
git config include: git -c include.path="$S" config -l
git GIT_CONFIG_GLOBAL: GIT_CONFIG_GLOBAL="$S" git config -l
git grep: cd "${S%/*}" && git grep --no-index -h .
git blame: git init -q . && touch x && git add x && git commit -qm 2 && git blame --contents "$S" x
git commit -F: git init -q . && git commit -q --allow-empty -F "$S" && git log
git notes: git init -q . && git commit -qm 1 --allow-empty && git notes add -F "$S" && git notes show
git stripspace: git stripspace < "$S"
git interpret-trailers: git interpret-trailers "$S"
git archive: git init -q . && git commit -qm 1 --allow-empty && git archive --add-file="$S" HEAD
git cat-file --batch: git init -q . && git cat-file --batch < "$S"
git fast-import: git init -q . && git fast-import < "$S"
git add: git init -q . && git --work-tree="${S%/*}" add -A && git cat-file -p :"${S##*/}"
git clone: git init -q a && git -C a commit -qm 1 --allow-empty && git clone -q --template="${S%/*}" a o
gpg: GNUPGHOME=$PWD gpg --batch -z0 --store -o o "$S"
grep: grep . "$S"
grep -r: grep -rh . "${S%/*}"
gzip: gzip -c "$S" | gunzip
head: head -c 99 "$S"
hexdump: hexdump -ve '/1 "%c"' "$S"
iconv: iconv -f utf8 -t utf8 "$S"
install: install "$S" o
join: join -t@ "$S" "$S"
jq: jq -R . "$S"
jq --rawfile: jq -n --rawfile x "$S" '$x'
ld @file: ld @"$S"
ld -b binary: ld -r -b binary -o o "$S" && strings o
ln: ln "$S" o && cat o
look: look '[' "$S"
m4: m4 "$S"
m4 include: echo "include($S)" | m4
make file: printf 'all:;@:\n$(info $(file <%s))' "$S" > x && make -f x
make -f: printf 'all: ; @cat %s' "$S" | make -sf -
mawk: mawk 1 "$S"
more: more "$S" < /dev/null
nl: nl "$S"
nm @file: nm @"$S"
node: node "$S"
node -p: node -p 'require("fs").readFileSync(process.env.S, "utf8")'
node --env-file: node --env-file="$S" -p 'JSON.stringify(process.env)'
numfmt: numfmt < "$S"
objcopy: objcopy -I binary -O binary "$S" o
objcopy --add-section: printf 'int x;' | gcc -c -o x.o -x c - && objcopy --add-section=.s="$S" x.o o
objdump: objdump -s -b binary "$S" | cut -c 7-41 | tr -d ' \n'
od: od -An -v -tx1 "$S" | tr -d ' \n'
openssl base64: openssl base64 -in "$S" | openssl base64 -d
openssl enc: openssl enc -base64 -A -in "$S"
paste: paste "$S"
perl: perl -pe 1 "$S"
perl script: perl "$S"
perl do: perl -e 'do $ENV{S}; print $@; open F, "<", $ENV{S}; print <F>'
pr: pr -t "$S"
ptx: ptx "$S"
python: $PYTHON -c 'import os; print(open(os.environ["S"]).read())'
python script: $PYTHON "$S"
python PYTHONSTARTUP: PYTHONSTARTUP="$S" $PYTHON -i </dev/null
python -m tokenize: $PYTHON -m tokenize "$S"
python -m base64: $PYTHON -m base64 -e "$S" | $PYTHON -m base64 -d
python -m zipfile: $PYTHON -m zipfile -c o.zip "$S" && $PYTHON -m zipfile -e o.zip d
python -m tarfile: $PYTHON -m tarfile -c o.tar "$S"
python mmap: $PYTHON -c 'import mmap, os; print(mmap.mmap(os.open(os.environ["S"], 0), 0, prot=mmap.PROT_READ)[:])'
python ctypes: $PYTHON -c 'from ctypes import *; b = (c_char * 99)(); CDLL(None).read(5, b, 99); print(b.value)' 5<"$S"
python configparser: $PYTHON -c 'from configparser import *; c = ConfigParser(); c.read("/dev/stdin"); print(*c)' < "$S"
python sendfile: $PYTHON -c 'from os import *; sendfile(1, open(environ["S"], 0), 0, 99)' > o
python copy_file_range: $PYTHON -c 'from os import *; copy_file_range(open(environ["S"], 0), 1, 99)' > o
python splice: $PYTHON -c 'from os import *; r, w = pipe(); splice(open(environ["S"], 0), w, 99); print(read(r, 99))'
rev: rev "$S" | rev
rsync: rsync -a "$S" o
rsync --files-from: rsync -v --files-from="$S" . o
script: script -qec 'cat "$S"' o
sdiff: sdiff "$S" /dev/null
sed: sed '' "$S"
sed r: echo x | sed "r $S"
sed w: sed 'w o' "$S"
sed e: echo | sed "e cat $S"
sh: sh "$S"
sh read: sh -c 'while read -r x; do echo "$x"; done < "$S"'
shuf: shuf "$S"
sort: sort "$S"
sort --files0-from: sort --files0-from="$S"
sort -o: sort -o o "$S"
split: split --filter=cat "$S"
sqlite3 readfile: sqlite3 :memory: "select readfile('$S')"
sqlite3 .import: printf '.mode csv\n.import %s t\nselect * from t' "$S" | sqlite3 :memory:
sqlite3 .read: echo ".read $S" | sqlite3 :memory:
sqlite3 -init: sqlite3 -init "$S" :memory: 'select 1'
strace: strace -s 99 -e trace=read -o o cat "$S"
strings: strings "$S"
sysctl -p: sysctl -p "$S"
tac: tac "$S"
tail: tail "$S"
tail -f: timeout 0.2 tail -f "$S"
tar: tar cf o "$S"
tar -T: tar cf o -T "$S"
tar -I: tar cf /dev/null -I "sh -c 'cat \"$S\" > o'" /dev/null; cat o
tar --to-command: tar cf x -C "${S%/*}" . && tar xf x --to-command=cat
tclsh: echo 'puts [read [open $env(S)]]' | tclsh
tee: tee o < "$S"
timeout: timeout 5 cat "$S"
tmux: tmux -S sock -f "$S" new -d cat \; load-buffer "$S" \; show-buffer \; kill-server
tput -S: TERM=xterm tput -S < "$S"
tr: tr a a < "$S"
troff: groff -Tascii "$S"
tsort: tsort "$S"
ul: ul "$S"
unexpand: unexpand "$S"
uniq: uniq "$S"
vim -es: vim -u NONE -es '+w! o' '+qa!' "$S" </dev/null
vim -S: vim -u NONE -es -V1o -S "$S" '+qa!' </dev/null
wc --files0-from: wc --files0-from="$S"
xargs -a: xargs -a "$S" echo
xxd: xxd -p "$S" | xxd -r -p
xz: xz -c "$S" | xz -dc
zip: zip -q o.zip "$S" && unzip -p o.zip
zstd: zstd -qc "$S" | zstd -dc
dpkg-query: dpkg-query --admindir=. -W; ln -s "$S" status; dpkg-query --admindir=. -W
node -r: node -r "$S" -e 0
git diff --output: git diff --no-index --output=o /dev/null "$S"
wget -i: wget -O- -i "$S"
zip -@: echo "$S" | zip -q@ o.zip; unzip -p o.zip
"""


def cases() -> dict[str, str]:
    """Name to command, of all."""
    found = dict(line.split(": ", 1) for line in CASES.strip().splitlines())
    assert len(found) == len(CASES.strip().splitlines())
    return found
