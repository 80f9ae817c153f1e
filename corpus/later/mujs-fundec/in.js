function f() { f = 1; return typeof f; }
print(f(), typeof f);
