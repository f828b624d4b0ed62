(() => {
  const root = document.documentElement;
  // Paper is light whatever the screen is: print has the colors of the style's first rule.
  let printing = false;
  const light = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).find((rule) => rule.selectorText === ":root").style;
  const color = (name) => (printing ? light : getComputedStyle(root)).getPropertyValue(name).trim();
  const config = { responsive: true, displayModeBar: false };
  const NARROW = 560;

  // Pages of earlier versions do not say which figures are small multiples.
  const guessed = (layout) => {
    const axes = Object.keys(layout).filter((key) => /^xaxis\d*$/.test(key));
    if (!layout.coloraxis || axes.length < 2 || (layout.annotations ?? []).length !== axes.length) return null;
    const across = new Set(axes.map((key) => layout[key].domain?.[0])).size;
    return { across, panels: axes.length, size: Math.round(((layout.height ?? 380) - 110) / Math.ceil(axes.length / across)) - 40 };
  };
  // Small multiples: fewer beside each other where the page is narrow.
  const restack = (layout, width) => {
    const grid = layout.meta?.grid ?? guessed(layout);
    if (!grid) return layout.height;
    const least = Math.max(130, 6.4 * Math.max(...(layout.annotations ?? []).map((note) => note.text.length)));
    const across = Math.max(1, Math.min(grid.across, Math.floor(width / least)));
    if (across === grid.across) return layout.height;
    const down = Math.ceil(grid.panels / across), size = Math.min(grid.size, Math.round(width / across)), tall = down * (size + 44);
    const gapX = 0.36 / (across + 2), gapY = 44 / tall, w = (1 - gapX * (across - 1)) / across, h = size / tall;
    for (let i = 0; i < grid.panels; i++) {
      const n = i ? i + 1 : "", left = (i % across) * (w + gapX), top = 1 - Math.floor(i / across) * (h + gapY);
      layout[`xaxis${n}`].domain = [left, left + w];
      layout[`yaxis${n}`].domain = [Math.max(0, top - h), top];
      Object.assign(layout.annotations[i], { x: left + w / 2, y: top });
    }
    return tall + 70;
  };

  // Plotly reads texts as markup; names and tokens ("<s>", "&lt;") are shown letter by letter.
  const TEXTS = new Set(["name", "text", "hovertext", "ticktext", "title", "x", "y", "x0", "x1", "y0", "y1", "tickvals", "categoryarray"]);
  const plain = (value, shown = false) => {
    if (Array.isArray(value)) return value.map((held) => plain(held, shown));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, held]) => [key, plain(held, TEXTS.has(key))]));
    return shown && typeof value === "string" ? value.replaceAll("&", "&amp;").replaceAll("<", "&lt;") : value;
  };

  // The page's colors, light or dark, and its width go into a copy of the figure; titles that the
  // page itself shows are left out.
  const themed = (spec, hoisted, width) => {
    const layout = structuredClone(spec.layout ?? {});
    layout.font = { ...layout.font, color: color("--ink") };
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: color("--panel"), bordercolor: color("--rule"), font: { color: color("--ink") } };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
      const axis = layout[name];
      Object.assign(axis, { gridcolor: color("--grid"), linecolor: color("--quiet"), tickcolor: color("--quiet"), automargin: true });
      axis.tickfont = { ...axis.tickfont, color: color("--quiet") };
      if (hoisted.includes(name[0])) delete axis.title;
    }
    for (const note of layout.annotations ?? []) {  // names of levels have the figure's gray, too pale for small letters
      if (note.font?.color && note.font.color === spec.layout.font?.color) note.font.color = color("--quiet");
    }
    delete layout.title;
    if (layout.coloraxis) layout.coloraxis.showscale = false;
    const noted = (layout.annotations ?? []).length;
    const height = restack(layout, width);
    layout.height = (height ?? 380) - 40;
    if (layout.yaxis?.scaleanchor) layout.height = Math.min(layout.height, Math.max(240, width + 10));
    layout.margin = { ...layout.margin, t: layout.meta?.top ?? (noted ? 24 : 12), b: hoisted.includes("x") ? 28 : 48, l: hoisted.includes("y") ? 44 : 60 };
    decades(layout, spec.data ?? [], width);
    shorten(layout, spec.data?.[0], width);
    if (layout.meta?.legend === "below" && width < NARROW && spec.data?.[0]?.orientation === "h") layout.height += 19 * (spec.data.length - 1);  // one name per line
    if (layout.meta?.legend !== "below" && (width < NARROW || layout.meta?.legend === "top")) {
      layout.legend = { ...layout.legend, orientation: "h", x: 0, y: 1, yanchor: "bottom", xanchor: "left" };
      layout.margin.r = Math.min(layout.margin.r ?? 24, 90);
      if (layout.showlegend) {
        Object.assign(layout.legend, { maxheight: 4000 });
        layout.height += 19 * Math.max(0, rows(spec.data ?? [], width - 80) - 2);
      }
    }
    return plain(layout);
  };
  // How many lines a legend across the page has.
  const rows = (data, width) => {
    let lines = 1, used = 0;
    for (const { name } of data.filter((trace) => trace.name && trace.showlegend !== false)) {
      const long = 40 + 6.6 * String(name).length;
      if (used && used + long > width) [lines, used] = [lines + 1, 0];
      used += long;
    }
    return lines;
  };
  // Long names of lying bars lose their ends where the page is narrow; hovering shows them whole.
  const shorten = (layout, trace, width) => {
    const most = Math.floor(width * 0.5 / 6.6), at = trace?.orientation === "h" ? (trace.y ?? []) : [];
    const names = typeof at[0] === "number" ? (layout.yaxis?.ticktext ?? []) : at;  // names that repeat stand beside numbers
    if (width >= NARROW || !names.some((name) => typeof name === "string" && name.length > most)) return;
    const text = names.map((name) => (name.length > most ? `${name.slice(0, most - 1)}…` : name));
    Object.assign(layout.yaxis, { tickmode: "array", tickvals: at, ticktext: text });
  };
  // On a logarithmic axis a label for every decade, or for every second, third … where they are close.
  const decades = (layout, data, width) => {
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key) && layout[key].type === "log")) {
      const letter = name[0], id = name.replace("axis", ""), domain = layout[name].domain ?? [0, 1];
      const values = data.filter((trace) => (trace[`${letter}axis`] ?? letter) === id).flatMap((trace) => trace[letter] ?? []).filter((value) => value > 0);
      const span = Math.log10(Math.max(...values) / Math.min(...values)) || 1;
      const names = data.flatMap((trace) => trace.orientation === "h" ? trace.y.map((text) => String(text).length) : []);
      const left = Math.min(width / 2, 70 + 6.6 * Math.max(0, ...names));
      const pixels = (domain[1] - domain[0]) * (letter === "y" ? layout.height - 70 : width - left - 40) / span;
      const room = letter === "y" ? 24 : 46;
      if (Number.isFinite(pixels) && span > 1.2) Object.assign(layout[name], { dtick: Math.max(1, Math.ceil(room / pixels)), nticks: undefined });
    }
  };
  const bare = (data) => structuredClone(data ?? []).map((trace) => {
    if (trace.type === "heatmap") trace.showscale = false;
    if (trace.marker?.showscale) trace.marker.showscale = false;
    return plain(trace);
  });

  const cells = (value) => /[",\n]/.test(String(value ?? "")) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? "");
  const csv = (spec) => {
    const rows = [["trace", "x", "y", "z"]];
    (spec.data ?? []).forEach((trace, t) => {
      const name = trace.name ?? `trace ${t}`;
      if (trace.z) trace.z.forEach((line, r) => line.forEach((value, c) => rows.push([name, trace.x?.[c] ?? c, trace.y?.[r] ?? r, value])));
      else for (let i = 0; i < Math.max(trace.x?.length ?? 0, trace.y?.length ?? 0); i++) rows.push([name, trace.x?.[i], trace.y?.[i], ""]);
    });
    return rows.map((row) => row.map(cells).join(",")).join("\n") + "\n";
  };
  const slug = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 80);
  const save = (name, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  const plots = [...document.querySelectorAll("script[data-plot]")].map((source) => ({
    element: document.getElementById(source.dataset.plot),
    hoisted: source.dataset.hoisted ?? "",
    spec: JSON.parse(source.textContent),
    slider: document.querySelector(`input[data-steps="${source.dataset.plot}"]`),
  }));
  for (const button of document.querySelectorAll("button[data-csv]")) {
    const plot = plots.find(({ element }) => element.id === button.dataset.csv);
    button.addEventListener("click", () => {
      const view = document.getElementById(button.dataset.csv.replace("plot", "view"))?.shown?.();  // its example, step and all heads
      const name = [button.dataset.name, view && slug(view.name)].filter(Boolean).join("-");
      save(`${name}.csv`, csv(view ?? (plot ? current(plot) : {})));
    });
  }
  // What a figure shows now: itself, or the step that its slider stands at.
  const frameOf = ({ spec, slider }) => (slider ? spec.frames[Number(slider.value)] : undefined);
  const current = (plot) => {
    const frame = frameOf(plot);
    return { data: frame?.data ?? plot.spec.data, layout: { ...plot.spec.layout, ...frame?.layout } };
  };
  const drawOne = (plot) => {
    const { element, hoisted } = plot, spec = current(plot);
    if (element.hidden || element.closest("details:not([open])")) return Promise.resolve();
    const layout = themed(spec, hoisted, element.clientWidth);
    element.style.height = `${layout.height}px`;
    return Plotly.react(element, bare(spec.data), layout, config);
  };
  const draw = () => plots.reduce(
    (before, plot) => before.then(() => drawOne(plot)).then(() => new Promise((next) => setTimeout(next))),
    Promise.resolve(),
  ).then(() => { root.dataset.figures = "drawn"; });

  for (const folded of document.querySelectorAll("details.unfound")) folded.addEventListener("toggle", () => {
    if (folded.open) plots.filter(({ element }) => folded.contains(element)).forEach(drawOne);
  });
  let width = root.clientWidth;
  addEventListener("resize", () => { if ((width < 640) !== (root.clientWidth < 640)) draw(); width = root.clientWidth; });

  // One slider moves every figure of the page that has its step.
  const waiting = new Set();
  const moveTo = (name) => {
    for (const plot of plots.filter(({ slider }) => slider)) {
      const place = plot.spec.frames.findIndex((frame) => frame.name === name);
      if (place < 0) continue;
      plot.slider.value = place;
      plot.slider.setAttribute("aria-valuetext", `step ${name}`);
      plot.slider.nextElementSibling.value = name;
      if (!waiting.size) requestAnimationFrame(() => { waiting.forEach(drawOne); waiting.clear(); });
      waiting.add(plot);
    }
  };
  for (const plot of plots.filter(({ slider }) => slider)) {
    plot.slider.addEventListener("input", () => moveTo(frameOf(plot).name));
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  for (const [event, now] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => {
    printing = now;
    plots.filter(({ element }) => element.classList.contains("js-plotly-plot")).forEach(drawOne);
  });
  draw();
})();
