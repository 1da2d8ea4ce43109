# tar, rsync, cp -a, mv and install, within one file system and across two.
# needs: tar rsync getfattr setfattr
# both
umask 022
mkdir -p a/sub/deep
echo one > a/one; echo two > a/sub/two; ln a/one a/hard; ln -s ../one a/sub/link; ln -s nowhere a/dangling
mkfifo a/fifo; chmod 640 a/one; chmod 2750 a/sub; chmod 4711 a/sub/two; touch -d 2001-02-03 a/one a/sub
setfattr -n user.note -v hello a/sub/two
printf x > "a/with
newline"; printf x > $'a/\xff\xfe'; : > a/empty
truncate -s 1M a/sparse
cp -a a b
tar -cf a.tar --sort=name --mtime=@0 a
mkdir t; tar -xpf a.tar -C t
tar -cf - a | (mkdir p; cd p; tar -xf -)
rsync -aHX a/ r/; echo three > a/three; rm a/empty; rsync -aHX --delete a/ r/
rsync -a --backup --suffix=.old a/ r/
mv b/sub moved; mv moved b/again; mv -T b renamed
mv -n renamed/one renamed/hard || :
cp -l a/one linked; cp -s $PWD/a/one soft; cp --remove-destination a/three soft; cp -b a/three linked
cp -u a/three a/one
install -d -m 711 made/dir; install -m 600 a/three made/dir/file
ln -f a/three made/three; ln -sfn dir made/current; ln -sfn other made/current
mkdir "$OUTSIDE"
cp -a a "$OUTSIDE/a"; mv "$OUTSIDE/a" back
mv renamed "$OUTSIDE/gone"; mv "$OUTSIDE/gone" returned
ln a/one "$OUTSIDE/no" 2>err || echo "cross-device link: $?"; sed 's/.*: //' err; rm err
ls "$OUTSIDE"; rmdir "$OUTSIDE"
stat -c '%Y %n' a/sub returned/sub back/sub 2>&1 | sort
touch -d 2003-03-03 a/one; touch -r a/one stamp; touch -h -d 2002-01-01 a/dangling; stat -c '%Y' stamp a/dangling
cp --sparse=always a/sparse sparse2; dd if=a/three of=dd conv=notrunc,fsync status=none; shred -u dd
find . -newer stamp -type l | sort
rm -r t p; rm -rf r/sub; find back -delete
sed -i 's/three/3/' a/three; sort -o a/three a/three; split -b 1 a/three part.
