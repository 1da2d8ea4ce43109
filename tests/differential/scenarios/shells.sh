# What scripts do all day: mktemp, find -exec, xargs, traps, subshells, signals, exit codes, background jobs.
# output: tmp\.[A-Za-z0-9]{10}
# output: \b\d{3,7} (Killed|Terminated)
t=$(mktemp); echo x > "$t"; cat "$t"; stat -c %a "$t"; rm "$t"
d=$(mktemp -d); stat -c %a "$d"; rmdir "$d"
mktemp -p . made.XXXXXX | sed 's/made\..*/made/'; rm made.*
mkdir -p tree/{a,b,c}/{1,2}; touch tree/{a,b,c}/{1,2}/f
find tree -type f -exec sh -c 'echo "$1" > "$1"' _ {} \;
find tree -type f | sort | xargs -P2 -n2 cat | sort
find tree -name 1 -prune -exec rm -r {} +
(trap 'echo trapped' TERM; kill -TERM $BASHPID; echo after)
sh -c 'kill -9 $$' || echo "status $?"
sh -c 'exit 42' || echo "status $?"
/nonexistent/command 2>/dev/null || echo "status $?"
./tree 2>/dev/null || echo "status $?"
sleep 100 & kill $!; wait $! || echo "status $?"
(sleep 0.05; echo late > late) & wait; cat late
timeout 0.2 sleep 5 || echo "status $?"
for n in 1 2 3; do ( cd tree && pwd | sed 's,.*/,,' ); done
cd tree; cd ../tree/./b; pwd | sed 's,.*/tree,tree,'; cd "$OLDPWD"; cd ..
chmod 000 late; [ "$(id -u)" = 0 ] || cat late 2>/dev/null || echo unreadable; chmod 644 late
chmod -R go-rwx tree; touch -d 2000-01-01 late; stat -c %Y late
ulimit -n 8; sh -c 'exec 3<late 4<late 5<late 6<late 7<late; cat late' 2>/dev/null || echo "no descriptor left"
