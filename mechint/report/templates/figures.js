(() => {
  const root = document.documentElement;
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

  // The page's colors, light or dark, go into a copy of the figure.
  const themed = (spec) => {
    const layout = structuredClone(spec.layout ?? {});
    layout.font = { ...layout.font, color: color("--ink") };
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: color("--panel"), bordercolor: color("--rule"), font: { color: color("--ink") } };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
      Object.assign(layout[name], { gridcolor: color("--grid"), linecolor: color("--quiet"), tickcolor: color("--quiet") });
      layout[name].tickfont = { ...layout[name].tickfont, color: color("--quiet") };
    }
    return layout;
  };

  const plots = [...document.querySelectorAll("script[data-plot]")].map((source) => ({
    element: document.getElementById(source.dataset.plot),
    spec: JSON.parse(source.textContent),
  }));
  const draw = () => plots.reduce(
    (before, { element, spec }) => before
      .then(() => Plotly.react(element, structuredClone(spec.data ?? []), themed(spec), config))
      .then(() => new Promise((next) => setTimeout(next))),
    Promise.resolve(),
  ).then(() => { root.dataset.figures = "drawn"; });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("beforeprint", () => plots.forEach(({ element }) => Plotly.Plots.resize(element)));
  draw();
})();
