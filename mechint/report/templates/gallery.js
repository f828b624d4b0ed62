(() => {
  const cards = [...document.querySelectorAll(".card")], count = document.querySelector("#count");
  const selects = [...document.querySelectorAll("select[data-by]")];
  const fits = (card) => selects.every(({ dataset, value }) => !value || card.dataset[dataset.by].split(" ").includes(value));
  const filter = () => {
    for (const card of cards) card.hidden = !fits(card);
    for (const group of document.querySelectorAll(".group")) group.hidden = !group.querySelector(".card:not([hidden])");
    count.textContent = `${cards.filter((card) => !card.hidden).length} of ${cards.length} pages`;
  };
  // The address keeps what was chosen; a page that is opened keeps the address it was opened by.
  const choose = () => {
    filter();
    const chosen = selects.map(({ value }) => value).join("/");
    history.replaceState(null, "", location.href.split("#")[0] + (/[^/]/.test(chosen) ? `#${chosen}` : ""));
  };
  const read = () => {
    const asked = decodeURIComponent(location.hash.slice(1)).split("/");
    selects.forEach((select, i) => {
      select.value = [...select.options].some(({ value }) => value === asked[i]) ? asked[i] : "";
    });
    filter();
  };
  for (const select of selects) select.addEventListener("change", choose);
  addEventListener("hashchange", read);
  read();
})();
