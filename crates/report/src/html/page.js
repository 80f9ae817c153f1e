"use strict";
(() => {
  const all = (selector, root) => [...(root || document).querySelectorAll(selector)];
  const target = (link) => document.getElementById(link.hash.slice(1));

  // Folded parts around a line are opened.
  const reveal = (line) => {
    for (let e = line.parentElement; e; e = e.parentElement) {
      if (e.tagName === "DETAILS") e.open = true;
    }
  };

  const unmark = () => {
    for (const name of ["here", "on-path", "current"]) {
      all("." + name).forEach((e) => e.classList.remove(name));
    }
  };

  // Marks the line that a link leads to, and the other lines of the same path; the browser scrolls there by itself.
  const mark = (link) => {
    const line = target(link);
    unmark();
    all("a.step", link.closest(".card")).map(target).forEach((l) => l.classList.add("on-path"));
    line.classList.add("here");
    link.classList.add("current");
    reveal(line);
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.step, a.line");
    if (link) mark(link);
  });

  // Going back and forth, and opening the page at a line.
  const follow = () => {
    const marked = document.querySelector("a.current");
    if (marked && marked.hash === location.hash) return;
    const link = all("a.step, a.line").find((l) => l.hash === location.hash);
    if (link) mark(link);
    else unmark();
  };
  addEventListener("hashchange", follow);
  follow();

  const copy = (button) => {
    const code = button.parentElement.querySelector("code");
    const done = () => { button.textContent = "Copied"; };
    const select = () => getSelection().selectAllChildren(code);
    if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select);
    else select();
  };
  all(".command button").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  });
})();
