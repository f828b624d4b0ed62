(() => {
  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const choice = (title, names, then) => {
    const select = make("select", {}, ...names.map((name, i) => make("option", { value: i }, name)));
    select.addEventListener("change", () => then(Number(select.value)));
    return [make("label", {}, `${title} `, select), select];
  };
  // Paper is light whatever the screen is: print has the colors of the style's first rule.
  let printing = false;
  const light = { "--ink": "#1b1f24", "--rule": "#dfe2e4", "--accent": "#00639c", "--bad": "#b3420a" };
  const color = (name) => (printing ? light[name] : getComputedStyle(document.documentElement).getPropertyValue(name).trim());

  const show = (root, spec) => {
    const state = { example: 0, step: spec.frames.length - 1, minus: 0, head: 0, query: spec.examples[0].tokens.length - 1, locked: false, arcs: false, ...spec.start };
    const tokens = () => spec.examples[state.example].tokens;
    const n = () => tokens().length;
    // What may be subtracted: examples of the same length, and other checkpoints of this one.
    const others = () => [
      ["nothing", null],
      ...spec.examples.flatMap((other, i) => i !== state.example && other.tokens.length === n()
        ? [[other.name, () => spec.frames[state.step][i]]] : []),
      ...spec.frames.flatMap((frame, i) => i !== state.step ? [[`step ${spec.steps[i]}`, () => frame[state.example]]] : []),
    ];
    const weights = (head) => {
      const here = spec.frames[state.step][state.example][head];
      const other = others()[state.minus]?.[1]?.()[head];
      return other ? here.map((value, i) => value - other[i]) : here;
    };
    const signed = () => state.minus > 0;
    const reach = () => signed() ? Math.max(1e-9, ...spec.heads.flatMap((_, head) => weights(head).map(Math.abs))) : 1;

    const exampleBox = make("input", { type: "range", min: 0, max: spec.examples.length - 1, value: 0, "aria-label": "example" });
    const exampleText = make("output", {}, spec.examples[0].name);
    const exampleLabel = make("label", { class: "example" }, "example ", exampleBox, exampleText);
    exampleBox.addEventListener("input", () => {
      const i = Number(exampleBox.value), query = i === 0 ? spec.start?.query : undefined;
      Object.assign(state, { example: i, minus: 0, query: query ?? spec.examples[i].tokens.length - 1, locked: false });
      exampleText.textContent = spec.examples[i].name;
      offer();
      draw();
    });
    const [headLabel, headBox] = choice("head", spec.heads, (i) => { state.head = i; draw(); });
    const minusBox = make("select");
    minusBox.addEventListener("change", () => { state.minus = Number(minusBox.value); draw(); });
    const [kindLabel, kindBox] = choice("drawn as", ["matrices", "arcs"], (i) => { state.arcs = i === 1; draw(); });
    const slider = make("input", { type: "range", min: 0, max: spec.frames.length - 1, value: state.step });
    const stepText = make("output");
    const stand = (step) => { state.step = step; state.minus = 0; slider.value = step; offer(); draw(); };
    slider.addEventListener("input", () => {
      stand(Number(slider.value));
      document.dispatchEvent(new CustomEvent("step", { detail: spec.steps[state.step] }));
    });
    // Where a page's other figures go through the same steps, all of them stand at one.
    document.addEventListener("step", ({ detail }) => {
      const step = (spec.steps ?? []).indexOf(detail);
      if (step >= 0 && step !== state.step) stand(step);
    });
    const controls = make("div", { class: "controls" }, exampleLabel, headLabel, make("label", {}, "minus ", minusBox), kindLabel);
    if (spec.frames.length > 1) controls.append(make("label", {}, "step ", slider, stepText));
    const row = make("div", { class: "tokens", role: "group", "aria-label": "tokens: hover one to see where it looks, press to lock it" });
    const said = make("p", { class: "said", "aria-live": "polite" });
    const panels = make("div", { class: "panels" });
    const scale = make("p", { class: "scale" });
    const hint = make("p", { class: "scale" }, "Hover over a token, or a row, to see its attention; press to lock it. “minus” shows the difference from another example.");
    root.replaceChildren(controls, row, said, panels, scale, hint);

    const offer = () => {
      minusBox.replaceChildren(...others().map(([name], i) => make("option", { value: i }, name)));
      row.replaceChildren(...tokens().map((token, q) => {
        const button = make("button", { type: "button", class: "token" }, token);
        button.addEventListener("mouseenter", () => look(q));
        button.addEventListener("focus", () => look(q));
        button.addEventListener("click", () => lock(q));
        return button;
      }));
      panels.replaceChildren(...spec.heads.map((name, head) => {
        const canvas = make("canvas", { role: "img", "aria-label": `attention of ${name}` });
        const panel = make("figure", { class: "head" }, make("figcaption", {}, name), canvas);
        const at = (event) => state.arcs ? null : cell(canvas, event);
        canvas.addEventListener("mousemove", (event) => { const q = at(event); if (q !== null) look(q); });
        canvas.addEventListener("click", (event) => { state.head = head; headBox.value = head; const q = at(event); q === null ? draw() : lock(q); });
        return panel;
      }));
    };
    const look = (q) => { if (!state.locked && state.query !== q) { state.query = q; draw(); } };
    const lock = (q) => { state.locked = !(state.locked && state.query === q); state.query = q; draw(); };
    const margin = (canvas) => n() <= 20 && (state.arcs || canvas.clientWidth >= 16 * n()) ? Math.min(64, 7 * Math.max(...tokens().map((token) => token.length)) + 6) : 4;
    const cell = (canvas, event) => {
      const side = (canvas.clientWidth - margin(canvas) - 1) / n();
      const q = Math.floor((event.offsetY - 1) / side);
      return q >= 0 && q < n() ? q : null;
    };

    const paint = (canvas, head, most) => {
      const width = canvas.clientWidth, left = state.arcs ? 6 : margin(canvas), side = (width - left - (state.arcs ? 6 : 1)) / n();
      const height = state.arcs ? Math.round(width * 0.5) + 18 : Math.round(side * n()) + left + 1;
      const dots = window.devicePixelRatio || 1;
      Object.assign(canvas, { width: width * dots, height: height * dots });
      canvas.style.height = `${height}px`;
      const pen = canvas.getContext("2d"), values = weights(head), size = n();
      pen.scale(dots, dots);
      pen.font = "11px ui-monospace, Menlo, Consolas, monospace";
      const [more, less, ink, rule] = ["--accent", "--bad", "--ink", "--rule"].map(color);
      const tint = (value) => { pen.globalAlpha = Math.min(1, Math.abs(value) / most); return value < 0 ? less : more; };
      if (state.arcs) {
        const base = height - 16, x = (i) => left + (i + 0.5) * side;
        for (let q = 0; q < size; q++) for (let k = 0; k < size; k++) {
          const value = values[q * size + k];
          if (q === k || Math.abs(value) < 0.03 * most || q !== state.query) continue;
          pen.strokeStyle = tint(value);
          pen.lineWidth = 1 + 2 * pen.globalAlpha;
          pen.beginPath();
          pen.ellipse((x(q) + x(k)) / 2, base, Math.abs(x(q) - x(k)) / 2, Math.min(base - 4, Math.abs(x(q) - x(k)) / 2), 0, Math.PI, 2 * Math.PI);
          pen.stroke();
        }
        pen.globalAlpha = 1;
        pen.fillStyle = ink;
        pen.textAlign = "center";
        const step = Math.ceil(7 * Math.max(...tokens().map((token) => token.length)) / side);
        tokens().forEach((token, i) => { if (i % step === 0) pen.fillText(token, x(i), height - 3); });
        return;
      }
      values.forEach((value, i) => {
        if (!value) return;
        pen.fillStyle = tint(value);
        pen.fillRect(left + (i % size) * side, 1 + Math.floor(i / size) * side, side + 0.3, side + 0.3);
      });
      pen.globalAlpha = 1;
      if (head === spec.start?.head && state.example === 0) {
        pen.fillStyle = less;
        for (const [q, k] of spec.marked) pen.fillRect(left + (k + 0.35) * side, 1 + (q + 0.35) * side, 0.3 * side, 0.3 * side);
      }
      pen.strokeStyle = rule;
      pen.strokeRect(left, 1, size * side, size * side);
      pen.strokeStyle = ink;
      pen.lineWidth = state.locked ? 2 : 1;
      pen.strokeRect(left, 1 + state.query * side, size * side, side);
      if (left === 4) return;
      pen.fillStyle = ink;
      pen.textBaseline = "middle";
      const longest = Math.max(...tokens().map((token) => token.length));
      tokens().forEach((token, i) => {
        pen.textAlign = "right";
        pen.fillText(token, left - 4, 1 + (i + 0.5) * side, left - 5);
        pen.save();
        pen.translate(left + (i + 0.5) * side, size * side + 5);
        if (longest * 7 > side) pen.rotate(Math.PI / 2); else pen.translate(0, 2);
        pen.textAlign = longest * 7 > side ? "left" : "center";
        pen.fillText(token, 0, 0, longest * 7 > side ? left - 5 : side);
        pen.restore();
      });
    };

    const draw = () => {
      const most = reach(), values = weights(state.head), size = n();
      [...row.children].forEach((button, k) => {
        const value = values[state.query * size + k];
        const share = Math.round(100 * Math.min(1, Math.abs(value) / most));
        button.style.background = `color-mix(in srgb, var(${value < 0 ? "--bad" : "--accent"}) ${Math.round(share * 0.45)}%, transparent)`;
        button.setAttribute("aria-pressed", state.locked && k === state.query);
        button.classList.toggle("query", k === state.query);
      });
      const order = tokens().map((_, k) => k).sort((a, b) => Math.abs(values[state.query * size + b]) - Math.abs(values[state.query * size + a]));
      const named = order.slice(0, 3).map((k) => `${signed() && values[state.query * size + k] > 0 ? "+" : ""}${values[state.query * size + k].toFixed(2)} at “${tokens()[k]}” (position ${k})`);
      said.textContent = `${spec.heads[state.head]}, from “${tokens()[state.query]}” (position ${state.query}): ${named.join(", ")}.${state.locked ? " Locked: press it again to release." : ""}`;
      [...panels.children].forEach((panel, head) => {
        panel.classList.toggle("chosen", head === state.head);
        paint(panel.querySelector("canvas"), head, most);
      });
      stepText.textContent = spec.steps?.length ? ` ${spec.steps[state.step]}` : "";
      scale.replaceChildren(
        signed() ? `−${most.toFixed(2)} ` : "0 ",
        make("span", { class: signed() ? "ramp signed" : "ramp" }),
        signed() ? ` +${most.toFixed(2)} attention, the difference. ` : " 1 attention. ",
        state.arcs ? "An arc joins a query to a key it looks at." : "Rows are queries, columns are keys.",
      );
    };
    // What stands here now, for who saves its numbers: a matrix per head, and the choices in words.
    root.shown = () => ({
      name: [spec.examples[state.example].name, spec.steps?.length ? `step ${spec.steps[state.step]}` : "", signed() ? `minus ${others()[state.minus][0]}` : ""].filter(Boolean).join(" "),
      data: spec.heads.map((name, head) => {
        const values = weights(head);
        return { name, z: tokens().map((_, q) => values.slice(q * n(), (q + 1) * n())) };
      }),
    });
    headBox.value = state.head;
    kindBox.value = Number(state.arcs);
    offer();
    draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    document.addEventListener("theme", draw);
    for (const [event, now] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => { printing = now; draw(); });
    new ResizeObserver(() => draw()).observe(root);
  };

  for (const source of document.querySelectorAll("script[data-view]")) {
    const root = document.getElementById(source.dataset.view);
    root.previousElementSibling.hidden = true;  // the static drawing
    show(root, JSON.parse(source.textContent));
  }
})();
