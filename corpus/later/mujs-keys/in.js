print(Object.keys(["a", "b", "c"]).join(","));
