var a = [1, 2, 3, 4, 5];
var r = a.splice(2);
print(a.join(","), "/", r.join(","));
