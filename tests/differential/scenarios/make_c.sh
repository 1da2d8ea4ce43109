# A small C project built with make -j2, rebuilt after a change, installed, cleaned.
# needs: gcc make ar
# contents: \.o$
mkdir src build
for n in 1 2 3 4 5 6; do
  printf '#include "all.h"\nint f%s(void) { return %s; }\n' $n $n > src/f$n.c
  printf 'int f%s(void);\n' $n >> src/all.h
done
printf '#include <stdio.h>\n#include "all.h"\nint main(void) { printf("%%d\\n", f1()+f2()+f3()+f4()+f5()+f6()); return 0; }\n' > src/main.c
cat > Makefile <<'MAKE'
OBJECTS = $(patsubst src/f%.c,build/f%.o,$(wildcard src/f*.c))
build/sum: src/main.c build/liball.a
	$(CC) -O1 -o $@ src/main.c build/liball.a
build/liball.a: $(OBJECTS)
	rm -f $@; ar rcD $@ $^
build/%.o: src/%.c src/all.h
	$(CC) -O1 -c -o $@ $<
install: build/sum
	install -D -m 750 build/sum $(DESTDIR)/bin/sum
clean:
	rm -f build/*.o
MAKE
make -s -j2
build/sum
sleep 0.02; printf 'int extra;\n' >> src/f3.c
make -s -j2
build/sum
make -s install DESTDIR=$PWD/out
out/bin/sum
make -s clean
