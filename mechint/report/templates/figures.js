(() => {
  const root = document.documentElement;
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

  // The page's colours, light or dark, go into a copy of the figure.
  const themed = (spec) => {
    const layout = structuredClone(spec.layout);
    layout.font = { ...layout.font, color: colour("--ink") };
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: colour("--panel"), bordercolor: colour("--rule"), font: { color: colour("--ink") } };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
      Object.assign(layout[name], { gridcolor: colour("--grid"), linecolor: colour("--quiet"), tickcolor: colour("--quiet") });
      layout[name].tickfont = { ...layout[name].tickfont, color: colour("--quiet") };
    }
    return layout;
  };

  const plots = [...document.querySelectorAll("script[data-plot]")].map((source) => ({
    element: document.getElementById(source.dataset.plot),
    spec: JSON.parse(source.textContent),
  }));
  const draw = () => plots.reduce(
    (before, { element, spec }) => before
      .then(() => Plotly.react(element, structuredClone(spec.data), themed(spec), config))
      .then(() => new Promise((next) => setTimeout(next))),
    Promise.resolve(),
  ).then(() => { root.dataset.figures = "drawn"; });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("beforeprint", () => plots.forEach(({ element }) => Plotly.Plots.resize(element)));
  draw();
})();
