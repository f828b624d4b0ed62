// Static drawings of a page become interactive once plotly.js is there: hover, zoom, steps. Saving
// a figure as SVG, PNG or CSV needs no plotly.js.
(() => {
  const root = document.documentElement;
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  const merged = (own, changes) => {
    const made = { ...own, ...changes };
    for (const name of Object.keys(made)) if (made[name] === null) delete made[name];
    return made;
  };
  // The figure as it stands at the slider's step; a frame holds what differs from the last step.
  const current = ({ spec, slider }) => {
    const frame = slider ? spec.frames[Number(slider.value)] : undefined;
    if (!frame) return { data: spec.data, layout: spec.layout };
    const data = frame.whole ? frame.data : spec.data.map((trace, i) => merged(trace, frame.data[i]));
    return { data, layout: merged(spec.layout, frame.layout), caption: frame.caption };
  };
  const themed = (given, height, width) => {
    const layout = structuredClone(given);
    delete layout.title;
    layout.font = { ...layout.font, color: color("--ink"), size: width < 420 ? 10 : 12 };
    layout.hoverlabel = { bgcolor: color("--panel"), bordercolor: color("--rule"), font: { color: color("--ink") } };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
      Object.assign(layout[name], { gridcolor: color("--grid"), linecolor: color("--quiet"), tickcolor: color("--quiet") });
      layout[name].tickfont = { color: color("--quiet"), size: 11 };
      if (width < 420) layout[name].ticktext = layout[name].ticktext?.map((text) => text.length > 22 && !text.includes("&") ? `${text.slice(0, 10)}…${text.slice(-10)}` : text);
    }
    const above = layout.annotations.length || layout.showlegend;
    const margin = { l: 56, r: 16, t: above ? layout.meta.top : 12, b: 44 };
    layout.legend.y = 1 + layout.meta.lift / Math.max(height - margin.t - margin.b, 40);
    return Object.assign(layout, { height, margin });
  };

  const plots = [...document.querySelectorAll("script[data-plot]")].map((source) => {
    const element = document.getElementById(source.dataset.plot);
    const figure = element.closest("figure");
    const plot = { element, figure, fixed: figure.querySelector(".static"), spec: JSON.parse(source.textContent) };
    if (plot.spec.frames && globalThis.Plotly) addSlider(plot);
    return plot;
  });
  function addSlider(plot) {
    const last = plot.spec.frames.length - 1;
    const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: last, value: last });
    const label = document.createElement("label"), step = document.createElement("output");
    step.value = plot.spec.frames[last].name;
    label.className = "steps";
    label.append("step ", slider, step);
    plot.fixed.before(label);
    slider.addEventListener("input", () => {
      document.dispatchEvent(new CustomEvent("step", { detail: plot.spec.frames[Number(slider.value)].name }));
    });
    Object.assign(plot, { slider, step });
  }

  const draw = (plot) => {
    const { element, fixed, figure } = plot, { data, layout, caption } = current(plot);
    if (layout.meta.columns > 1 && figure.clientWidth < 560) return Promise.resolve();  // the drawing scrolls instead
    const height = plot.height ??= Math.max(fixed.offsetHeight, Math.min(layout.height, layout.yaxis.scaleanchor ? 400 : 260)) || layout.height;
    element.hidden = false;
    fixed.hidden = true;
    if (caption !== undefined) {
      figure.querySelector(".caption").textContent = caption;
      element.setAttribute("aria-label", caption);
      plot.slider.setAttribute("aria-valuetext", `step ${plot.step.value}`);
    }
    plot.drawn = true;
    return Plotly.react(element, data, themed(layout, height, figure.clientWidth), { responsive: true, displayModeBar: false });
  };
  const waiting = new Set();
  document.addEventListener("step", ({ detail }) => {  // one slider moves every figure that has its step
    for (const plot of plots.filter(({ slider }) => slider)) {
      const place = plot.spec.frames.findIndex(({ name }) => name === detail);
      if (place < 0) continue;
      plot.slider.value = place;
      plot.step.value = detail;
      if (!waiting.size) requestAnimationFrame(() => { waiting.forEach(draw); waiting.clear(); });
      waiting.add(plot);
    }
  });
  if (globalThis.Plotly) {
    const seen = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        const plot = plots.find(({ figure }) => figure === target);
        if (isIntersecting && !plot.drawn) draw(plot);
      }
    }, { rootMargin: "400px" });
    plots.forEach(({ figure }) => seen.observe(figure));
    const redraw = () => plots.filter(({ drawn }) => drawn).forEach(draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    document.addEventListener("theme", redraw);
  }

  // --- saving ---------------------------------------------------------------------------------------
  const quoted = (value) => {
    const letters = String(value ?? "").replaceAll("<br>", " ").replaceAll("&lt;", "<").replaceAll("&amp;", "&");  // as they are shown
    return /[",\n]/.test(letters) ? `"${letters.replaceAll('"', '""')}"` : letters;
  };
  const table = (columns, rows) => [columns, ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  const text = (title) => title?.text;
  const titleOf = (layout, name) => text(layout[name.replace(/^([xy])/, "$1axis")]?.title) ?? name;
  const named = (axis, at) => axis?.ticktext?.[axis.tickvals?.indexOf(at)] ?? at;
  const csv = ({ data, layout }) => {
    const first = data[0] ?? {}, value = text(first.colorbar?.title) ?? text(first.marker?.colorbar?.title) ?? "value";
    const last = Object.keys(layout).filter((key) => /^[xy]axis/.test(key));
    const x = titleOf(layout, "x") || titleOf(layout, last.filter((key) => key[0] === "x").at(-1).replace("axis", ""));
    const y = titleOf(layout, "y") || "y", rows = [];
    for (const trace of data.filter(({ hoverinfo }) => hoverinfo !== "skip")) {
      const across = layout[(trace.xaxis ?? "x").replace("x", "xaxis")], up = layout[(trace.yaxis ?? "y").replace("y", "yaxis")];
      const name = trace.name ?? titleOf(layout, trace.yaxis ?? "y");
      if (trace.z) trace.z.forEach((row, r) => row.forEach((cell, c) => rows.push([name, named(across, trace.x?.[c] ?? c), named(up, trace.y?.[r] ?? r), cell])));
      else trace.x.forEach((at, i) => rows.push([name, named(across, at), named(up, trace.y[i]), trace.marker?.color?.[i]?.at ? trace.text?.[i] : trace.marker?.color?.[i] ?? trace.text?.[i]]));
    }
    return table(["series", x, y === x ? `${y} (rows)` : y, value], rows);
  };
  // A drawing as a file of its own, in the colors of a light page.
  const svgOf = (figure) => {
    const svg = figure.querySelector(".static svg").cloneNode(true), [, , width, height] = svg.getAttribute("viewBox").split(" ");
    for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width: `${width}pt`, height: `${height}pt`, "font-family": "sans-serif" })) svg.setAttribute(name, value);
    const light = { ink: "#1b1f24", quiet: "#626b76", grid: "#e4e7e9" };
    return new XMLSerializer().serializeToString(svg).replace(/var\(--(ink|quiet|grid)[^)]*\)/g, (_, name) => light[name]);
  };
  const save = (name, blob) => {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const png = (text, done) => {
    const image = new Image(), address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    image.addEventListener("load", () => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 3 * image.width, height: 3 * image.height });
      const pen = canvas.getContext("2d");
      pen.fillStyle = "#ffffff";
      pen.fillRect(0, 0, canvas.width, canvas.height);
      pen.drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(done);
    });
    image.src = address;
  };
  const writers = {
    svg: (figure, name) => save(name, new Blob([svgOf(figure)], { type: "image/svg+xml" })),
    png: (figure, name) => png(svgOf(figure), (blob) => save(name, blob)),
    csv: (figure, name) => {
      const plot = plots.find((one) => one.figure === figure), view = figure.querySelector(".view")?.shown?.();
      const shown = view ? { data: view.data, layout: { xaxis: { title: { text: "key" } }, yaxis: { title: { text: "query" } } } } : current(plot);
      save(name, new Blob([csv(shown)], { type: "text/csv" }));
    },
  };
  for (const button of document.querySelectorAll("button[data-save]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      writers[button.dataset.save](button.closest("figure"), `${button.dataset.name}.${button.dataset.save}`);
    });
  }
  root.dataset.figures = "ready";
})();
