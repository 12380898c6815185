"use strict";
// Sorting, filtering, reading out. Every number was made before the page: nothing is computed here.
(() => {
  const FEW_ROWS = 20;
  const live = document.getElementById("live");
  const say = (text) => { live.textContent = text; };

  // Theme: automatic, light, dark; remembered where the browser lets a file remember.
  const theme = document.getElementById("theme");
  const themes = ["automatic", "light", "dark"];
  const remembered = () => { try { return localStorage.getItem("stepscope-theme"); } catch { return null; } };
  const applyTheme = (name) => {
    if (name === "automatic") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    theme.textContent = `Colours: ${name}`;
  };
  let current = themes.includes(remembered()) ? remembered() : "automatic";
  applyTheme(current);
  theme.hidden = false;
  theme.addEventListener("click", () => {
    current = themes[(themes.indexOf(current) + 1) % themes.length];
    applyTheme(current);
    try { localStorage.setItem("stepscope-theme", current); } catch { /* a file may not remember */ }
  });

  const sortKey = (cell) => cell.dataset.sort ?? cell.textContent.trim().toLowerCase();

  // Unknown values go last in both directions, and equal ones keep their order.
  const compare = (numeric, sign) => (one, two) => {
    const [a, b] = [one.key, two.key];
    if (a === "" || b === "") return (a === "") - (b === "");
    return sign * (numeric ? Number(a) - Number(b) : a < b ? -1 : a > b ? 1 : 0);
  };

  const setUpTable = (box) => {
    const body = box.querySelector("tbody");
    const heads = [...box.querySelectorAll("thead th")];
    const original = [...body.rows];
    if (original.length < 2) return;
    const input = box.querySelector("input");
    const select = box.querySelector("select");
    const output = box.querySelector("output");
    const all = box.querySelector(".all");
    const categoryAt = heads.findIndex((head) => head.textContent === "category");
    const texts = new Map(original.map((row) => [row, row.textContent.toLowerCase()]));
    let expanded = original.length <= FEW_ROWS + 5;

    const show = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const category = select ? select.value : "";
      let found = 0;
      for (const row of body.rows) {
        const fits = words.every((word) => texts.get(row).includes(word))
          && (!category || row.cells[categoryAt].textContent === category);
        if (fits) found += 1;
        row.hidden = !fits || (!expanded && found > FEW_ROWS);
      }
      const filtered = words.length > 0 || category !== "";
      output.textContent = filtered ? `${found} of ${original.length} rows` : `${original.length} rows`;
      all.hidden = expanded || found <= FEW_ROWS;
      all.textContent = `Show all ${found} rows`;
    };

    heads.forEach((head, at) => {
      const numeric = head.classList.contains("number");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const was = head.getAttribute("aria-sort");
        const next = was === (numeric ? "descending" : "ascending")
          ? (numeric ? "ascending" : "descending") : (numeric ? "descending" : "ascending");
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", next);
        const keyed = original.map((row) => ({ row, key: sortKey(row.cells[at]) }));
        keyed.sort(compare(numeric, next === "ascending" ? 1 : -1));
        body.append(...keyed.map(({ row }) => row));
        show();
        say(`${box.querySelector("h3").textContent}: sorted by ${button.textContent}, ${next}`);
      });
    });
    input.addEventListener("input", () => { show(); say(output.textContent); });
    select?.addEventListener("change", () => { show(); say(output.textContent); });
    all.addEventListener("click", () => {
      expanded = true;
      show();
      body.rows[FEW_ROWS]?.cells[0].scrollIntoView({ block: "nearest" });
      box.querySelector(".scroll").focus();
    });
    box.querySelector(".tools").hidden = original.length < 6;
    window.addEventListener("beforeprint", () => { expanded = true; show(); });
    show();
  };

  // A chart is a slider over its readings: the arrow keys and the pointer move a line through all lanes.
  const setUpChart = (figure) => {
    const plot = figure.querySelector(".plot");
    const readings = plot.dataset.readings.split("|").filter(Boolean).map((entry) => {
      const space = entry.indexOf(" ");
      return { at: Number(entry.slice(0, space)), text: entry.slice(space + 1) };
    });
    if (readings.length === 0) return;
    const reading = figure.querySelector(".reading");
    const cursors = plot.querySelectorAll(".cursor");
    plot.setAttribute("role", "slider");
    plot.tabIndex = 0;
    plot.setAttribute("aria-valuemin", "0");
    plot.setAttribute("aria-valuemax", String(readings.length - 1));
    let position = 0;
    const move = (to, drawn) => {
      position = Math.min(Math.max(to, 0), readings.length - 1);
      plot.setAttribute("aria-valuenow", String(position));
      plot.setAttribute("aria-valuetext", readings[position].text);
      if (!drawn) return;
      reading.textContent = readings[position].text;
      cursors.forEach((line) => { line.setAttribute("x1", `${readings[position].at}%`); line.setAttribute("x2", `${readings[position].at}%`); });
    };
    const keys = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };
    plot.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      move(position + keys[event.key], true);
    });
    plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) move(position, true); });
    plot.addEventListener("pointermove", (event) => {
      const box = plot.querySelector(".track").getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * 100;
      if (at < 0 || at > 100) return;
      let nearest = 0;
      readings.forEach((entry, index) => { if (Math.abs(entry.at - at) < Math.abs(readings[nearest].at - at)) nearest = index; });
      move(nearest, true);
    });
    move(0, false);
  };

  document.querySelectorAll(".table").forEach(setUpTable);
  document.querySelectorAll(".chart").forEach(setUpChart);
})();
