# Shell redirections: kept descriptors, process substitution, /proc/self/fd, /dev/stdin, here-documents (P11, P26).
# both
echo text > f
exec 3<f; cat <&3; exec 3<&-
exec 4>out; echo one >&4; echo two >/proc/self/fd/4; echo three >/dev/fd/4; exec 4>&-; cat out
exec 5<>both; echo abc >&5; cat both; exec 5>&-
cat /dev/stdin < f
cat /proc/self/fd/0 < f
cat < /dev/null; echo gone > /dev/null
diff <(sort f) <(cat f) && echo same
tee >(cat > teed) < f > /dev/null; for n in $(seq 100); do [ -s teed ] && break; sleep 0.02; done; cat teed
cat <<END
here $((1 + 1))
END
cat <<< "string"
head -c 200000 /dev/zero | tr '\0' x > big; x=$(cat big); cat <<< "$x" | wc -c
echo err >&2; (echo both; echo err2 >&2) > all 2>&1; cat all
echo out 2>&1 >/dev/stderr
set -C; echo new > fresh; (echo again > fresh) 2>/dev/null || echo noclobber; echo forced >| fresh; set +C; cat fresh
echo a >> app; echo b >> app; cat app
sh -c 'exec 7<f; exec sh -c "cat <&7"'
sh -c 'cat <&9' 9<f
coproc cat; echo hello >&${COPROC[1]}; read -r line <&${COPROC[0]}; echo "$line"; kill $COPROC_PID; wait $COPROC_PID || :
ln -s /proc/self/fd/8 through; cat through 8<f
(cd /proc && cat self/comm); cat /proc/thread-self/comm; readlink /proc/self/exe; readlink -f /dev/stdin < f | sed "s,$PWD,.,"
[ -t 0 ] || echo "no tty"; : < /dev/tty || echo "none to open"
