# 100 three-stage pipelines, some of them in the background.
for n in $(seq 100); do
  printf '%s\n' c b a $n | sort -r | tee out.$((n % 7)) | head -n 2 > last.$((n % 5))
done
for n in $(seq 20); do (echo $n | cat | sed 's/^/x/' > bg.$n) & done
wait
cat last.* out.* bg.*
yes | head -c 100000 | wc -c
cat /dev/zero | head -c 10 | od -An -c
false | true; echo $?
set -o pipefail; false | true || echo "pipefail $?"
