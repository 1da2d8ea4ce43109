# Ids that change inside: what root drops is dropped for every call that follows (P93), and new user namespaces (P80).
# needs: unshare setpriv
# both
id -u
if [ "$(id -u)" = 0 ]; then
  mkdir open; chmod 777 open
  setpriv --reuid 1 --regid 1 --clear-groups touch open/theirs
  setpriv --reuid 1 --regid 1 --clear-groups mkdir open/dir
  setpriv --reuid 1 --regid 1 --clear-groups cat /etc/shadow 2>&1 || echo refused
  mkdir closed; chmod 700 closed
  setpriv --reuid 1 --regid 1 --clear-groups touch closed/x 2>&1 || echo refused
  setpriv --reuid 1 --regid 1 --clear-groups rm -f open/theirs && echo removed
  setpriv --regid 2 --clear-groups touch open/group
fi
unshare -Ur id -u 2>/dev/null || echo "no user namespace"
unshare -Ur touch mapped 2>/dev/null || echo "no user namespace"
unshare -Ur unshare -Ur id -u 2>/dev/null || echo "no user namespace"
