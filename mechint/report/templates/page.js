// Theme, "open all", copies of commands, sorting of tables, and the way to what is folded.
(() => {
  const root = document.documentElement;
  const theme = document.getElementById("theme"), all = document.getElementById("open-all");
  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  if (theme) {
    theme.hidden = false;
    theme.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      document.dispatchEvent(new Event("theme"));
    });
  }
  if (all && document.querySelector("main details")) {
    all.hidden = false;
    all.addEventListener("click", () => {
      const folded = [...document.querySelectorAll("main details:not(.made)")], open = folded.some((one) => !one.open);
      for (const one of folded) one.open = open;
      all.textContent = open ? "close all" : "open all";
    });
  }
  for (const one of document.querySelectorAll(".static")) if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
  // Paper has nothing to open: folds are open while a page is printed.
  let shut = [];
  addEventListener("beforeprint", () => {
    shut = [...document.querySelectorAll("main details:not([open])")];
    for (const one of shut) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of shut) one.open = false; });
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = target?.closest("details");
    if (folded && !folded.open) { folded.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();

  for (const code of document.querySelectorAll("code.command")) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "copy", className: "copy" });
    button.addEventListener("click", async () => {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      try { await navigator.clipboard.writeText(code.textContent); } catch { document.execCommand("copy"); }
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
    code.after(" ", button);
  }

  const value = (row, place) => row.cells[place].textContent;
  const order = (a, b) => (Number.isFinite(Number(a)) && Number.isFinite(Number(b)) ? Number(a) - Number(b) : a.localeCompare(b));
  for (const head of document.querySelectorAll("table.grid thead th")) {
    head.addEventListener("click", () => {
      const table = head.closest("table"), rows = [...table.tBodies[0].rows], up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      rows.sort((a, b) => (up ? 1 : -1) * order(value(a, head.cellIndex), value(b, head.cellIndex)));
      table.tBodies[0].append(...rows);
    });
  }
})();
