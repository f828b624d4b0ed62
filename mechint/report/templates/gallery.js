// The search and the chips of the index; the address keeps them: #words/kind.
(() => {
  const cards = [...document.querySelectorAll(".card")], chips = [...document.querySelectorAll(".chip")];
  const words = document.getElementById("words"), count = document.getElementById("count");
  const chosen = () => chips.find((chip) => chip.getAttribute("aria-pressed") === "true")?.dataset.kind ?? "";
  const filter = () => {
    const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean), kind = chosen();
    for (const card of cards) card.hidden = !((!kind || card.dataset.kind === kind) && asked.every((word) => card.dataset.words.includes(word)));
    for (const group of document.querySelectorAll(".group")) group.hidden = !group.querySelector(".card:not([hidden])");
    count.textContent = `${cards.filter((card) => !card.hidden).length} of ${cards.length} pages`;
  };
  const choose = () => {
    filter();
    const state = words.value || chosen() ? `#${encodeURIComponent(words.value)}/${chosen()}` : "";
    history.replaceState(null, "", location.href.split("#")[0] + state);
  };
  const press = (kind) => chips.forEach((chip) => chip.setAttribute("aria-pressed", chip.dataset.kind === kind));
  for (const chip of chips) chip.addEventListener("click", () => { press(chip.dataset.kind === chosen() ? "" : chip.dataset.kind); choose(); });
  words.addEventListener("input", choose);
  const [asked, kind] = location.hash.slice(1).split("/");
  if (kind !== undefined) { words.value = decodeURIComponent(asked); press(kind); filter(); }
})();
