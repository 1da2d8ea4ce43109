# Everyday git: init, commit, branch, merge, rebase, stash, worktree, clone, tag, gc.
# needs: git
# both
# contents: (^|/)index$
# contents: \.(pack|idx|rev)$
# names: \.(pack|idx|rev|bitmap|graph)$
# output: Unpacking.*|Counting.*|Compressing.*|Total .*
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.org
export GIT_AUTHOR_DATE="2020-01-01T00:00:00Z" GIT_COMMITTER_DATE="2020-01-01T00:00:00Z" GIT_CONFIG_NOSYSTEM=1
git init -q -b main first
cd first
mkdir -p src/deep
for n in 1 2 3 4 5; do printf 'line %s\nmore\n' $n > src/f$n.txt; done
ln -s f1.txt src/link
printf '#!/bin/sh\necho hi\n' > run.sh; chmod 755 run.sh
printf 'build/\n' > .gitignore
git add -A
git commit -q -m one
git switch -q -c topic
echo topic >> src/f1.txt
git mv src/f2.txt src/deep/f2.txt
git commit -qam two
git rm -q src/f3.txt
git commit -qm three
git switch -q main
echo main >> src/f4.txt
git commit -qam four
git merge -q --no-ff -m merged topic
git log --oneline --graph --stat
git switch -q -c other HEAD~1
echo other > other.txt; git add other.txt; git commit -qm other
git rebase -q main
git log --oneline
echo dirty >> src/f5.txt; echo new > untracked
git stash push -q -u -m work
git status --porcelain
git stash pop -q
git status --porcelain
git checkout -q -- src/f5.txt; rm untracked
git worktree add -q ../tree main
cd ../tree
echo in-worktree > wt.txt; git add wt.txt; git commit -qm wt
git log --oneline -1
cd ../first
git worktree list --porcelain
git tag -a v1 -m version
git cherry-pick main >/dev/null
git gc -q
git fsck --full
cd ..
git clone -q first second
git clone -q --bare first bare.git
cd second
git config user.name someone
git branch --track mine origin/main
git fetch -q
echo second >> other.txt
git commit -qam second
git push -q origin HEAD:refs/heads/pushed
git diff --stat HEAD~1
git archive HEAD | tar -tf -
cd ..
git -C first worktree remove tree
git -C first branch -a
