// One figure saved as a page: drawn, and taken through its steps by a slider where it has some.
(() => {
  const source = document.querySelector("script[data-figure]"), spec = JSON.parse(source.textContent);
  const plot = document.getElementById(source.dataset.figure), caption = document.getElementById("caption");
  const frames = spec.frames ?? [], words = caption.textContent;
  const slider = document.createElement("input"), step = document.createElement("output");
  // A step's layout holds what differs from the figure's own, null for what it does not have.
  const draw = () => {
    const frame = frames[Number(slider.value)];
    const layout = structuredClone({ ...spec.layout, ...frame?.layout });
    for (const name of Object.keys(layout)) if (layout[name] === null) delete layout[name];
    step.value = ` ${frame?.name ?? ""}`;
    caption.textContent = frame?.caption ?? words;
    const title = layout.title?.text?.replaceAll("&lt;", "<").replaceAll("&amp;", "&");
    document.title = title ?? document.title;
    Plotly.react(plot, structuredClone(frame?.data ?? spec.data ?? []), layout, { responsive: true, displayModeBar: false });
  };
  if (frames.length) {
    Object.assign(slider, { type: "range", min: 0, max: frames.length - 1, value: frames.length - 1 });
    slider.addEventListener("input", draw);
    const label = document.createElement("label");
    label.append("step ", slider, step);
    plot.before(label);
  }
  draw();
})();
