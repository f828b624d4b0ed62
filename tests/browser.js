() => {
  const found = [], root = document.documentElement;
  if (root.scrollWidth > innerWidth) {
    const wide = [...document.body.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, pre, .md-typeset__scrollwrap, .highlight"));
    found.push(`overflow: the page is ${root.scrollWidth} wide; ${wide.slice(0, 3).map((e) => `${e.tagName}.${e.className}`).join(", ")}`);
  }
  for (const plot of document.querySelectorAll(".plot:not([hidden])")) {
    if (plot.closest("details:not([open])")) continue;
    const marks = plot.querySelectorAll(".trace, .heatmaplayer image, .hm, .barlayer path, .scatterlayer path, .contourlayer path");
    if (!plot.querySelector("svg.main-svg") || !marks.length) found.push(`${plot.id}: nothing is drawn`);
    const outer = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll(".xtick text, .ytick text, .x2tick text, .y2tick text, .annotation-text, .legendtext, .xtitle, .ytitle, .gtitle")]
      .map((e) => [e.textContent, e.getBoundingClientRect(), e.closest(".annotation") !== null, e.getAttribute("transform") ?? ""])
      .filter(([text, box]) => text.trim() && box.width);
    for (const [text, box] of texts) {
      if (box.left < outer.left - 2 || box.right > outer.right + 2 || box.top < outer.top - 2 || box.bottom > outer.bottom + 2) found.push(`${plot.id}: “${text}” is cut`);
    }
    for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
      const [a, b] = [texts[i][1], texts[j][1]];
      const turned = (t) => /rotate\((?!0|-90|90)/.test(t[3]);  // the box of slanted text is larger than it
      if (turned(texts[i]) || turned(texts[j])) continue;
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), up = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 2 && up > 4) found.push(`${plot.id}: “${texts[i][0]}” lies on “${texts[j][0]}”`);
    }
  }
  for (const view of document.querySelectorAll(".view")) {
    if (!view.querySelector("canvas") || ![...view.querySelectorAll("canvas")].every((c) => c.width > 10)) found.push(`${view.id}: no head is drawn`);
  }
  const leaves = [...document.querySelectorAll("h1, h2, h3, p, li, dt, dd, figcaption, summary, td, label, button")]
    .filter((e) => e.checkVisibility({ contentVisibilityAuto: true, opacityProperty: true, visibilityProperty: true }) && !(e.closest("details:not([open])") && e.tagName !== "SUMMARY") && !e.closest(".plot, nav.md-nav, .md-top, .md-header, .md-search, .md-footer, .md-overlay, dialog") && ![...e.children].some((c) => /^(P|LI|UL|OL|DIV|TABLE|DETAILS|DL|PRE|BUTTON|LABEL)$/.test(c.tagName)))
    .map((e) => [e, e.getBoundingClientRect()]).filter(([, r]) => r.width && r.height);
  leaves.sort((a, b) => a[1].top - b[1].top);
  for (let i = 0; i < leaves.length; i++) for (let j = i + 1; j < leaves.length && leaves[j][1].top < leaves[i][1].bottom; j++) {
    const [[e, a], [f, b]] = [leaves[i], leaves[j]];
    if (e.contains(f) || f.contains(e) || e.closest(".scroll, pre") !== f.closest(".scroll, pre")) continue;
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4) found.push(`“${e.textContent.trim().slice(0, 30)}” lies on “${f.textContent.trim().slice(0, 30)}”`);
  }
  return found;
}
