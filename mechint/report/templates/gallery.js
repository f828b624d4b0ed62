(() => {
  const cards = [...document.querySelectorAll(".card")], count = document.querySelector("#count");
  const selects = [...document.querySelectorAll("select[data-by]")];
  const fits = (card) => selects.every(({ dataset, value }) => !value || card.dataset[dataset.by].split(" ").includes(value));
  const filter = () => {
    for (const card of cards) card.hidden = !fits(card);
    for (const group of document.querySelectorAll(".group")) group.hidden = !group.querySelector(".card:not([hidden])");
    count.textContent = `${cards.filter((card) => !card.hidden).length} of ${cards.length} pages`;
    history.replaceState(null, "", `#${selects.map(({ value }) => value).join("/")}`);
  };
  const asked = decodeURIComponent(location.hash.slice(1)).split("/");
  selects.forEach((select, i) => {
    if ([...select.options].some(({ value }) => value === asked[i])) select.value = asked[i];
    select.addEventListener("change", filter);
  });
  filter();
})();
