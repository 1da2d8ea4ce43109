# A tmux server of our own: sessions, a shell in a pane, output captured, the server ended.
# needs: tmux
export TMUX_TMPDIR=$PWD/sockets
mkdir -m 700 sockets
tmux -L own -f /dev/null new-session -d -s one -x 80 -y 24 'sh'
tmux -L own send-keys -t one 'echo $((40 + 2)) > answer; tty > tty; exit 3' Enter
for n in $(seq 200); do [ -s answer ] && [ -s tty ] && break; sleep 0.05; done
cat answer
grep -c /dev/pts/ tty; rm tty
tmux -L own -f /dev/null new-session -d -s two 'sleep 100'
tmux -L own new-window -t two 'sleep 101'
tmux -L own list-windows -t two -F '#{window_index}'
tmux -L own kill-server
tmux -L own list-sessions 2>/dev/null || echo ended
for n in $(seq 100); do [ -e sockets/tmux-$(id -u)/own ] || break; sleep 0.02; done
