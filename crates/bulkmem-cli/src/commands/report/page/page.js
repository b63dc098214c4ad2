// Draws the charts from the figures in the page. Names from files (of methods, targets and machines) are inserted as text,
// never as markup.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("charts").textContent);
  const root = document.documentElement;
  root.classList.add("js");
  const darkWanted = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  let printing = paper.matches;

  const dark = () =>
    !printing && (root.dataset.theme ? root.dataset.theme === "dark" : darkWanted.matches);
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const ink = (series) => (dark() ? series.style.dark : series.style.light);

  // Escapes text for markup.
  const escaped = (text) =>
    String(text).replace(/[&<>"']/g, (it) => `&#${it.charCodeAt(0)};`);

  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
  function size(bytes) {
    let unit = 0;
    while (bytes >= 1024 && unit < UNITS.length - 1) {
      bytes /= 1024;
      unit += 1;
    }
    return `${+bytes.toFixed(1)} ${UNITS[unit]}`;
  }
  function digits(number) {
    if (!Number.isFinite(number)) return "–";
    const magnitude = Math.abs(number);
    if (magnitude >= 99.95) return Math.round(number).toLocaleString("en").replaceAll(",", " ");
    if (magnitude === 0) return "0";
    return number.toFixed(Math.min(9, Math.max(0, 2 - Math.floor(Math.log10(magnitude)))));
  }
  // Formats a number for an axis: 2.5k, 30M.
  function tick(number) {
    const magnitude = Math.abs(number);
    for (const [from, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
      const by = letter === "k" ? 1e3 : from;
      if (magnitude >= from) return `${+(number / by).toPrecision(3)}${letter}`;
    }
    return `${+number.toPrecision(3)}`;
  }
  function positionName(spec, position) {
    switch (spec.x_axis.scale) {
      case "bytes": return size(position);
      default: return spec.x_axis.scale.named ? (spec.x_axis.scale.named[position] ?? "") : `${position}`;
    }
  }
  const positionTitle = (spec, position) =>
    ["linear", "whole", "powers"].includes(spec.x_axis.scale) ? `${spec.x_axis.name} ${positionName(spec, position)}` : positionName(spec, position);

  const SYMBOLS = {
    circle: '<circle cx="14" cy="7" r="3.5" fill="currentColor"/>',
    rect: '<rect x="10.5" y="3.5" width="7" height="7" fill="currentColor"/>',
    triangle: '<path d="M14 2.5l4.2 8h-8.4z" fill="currentColor"/>',
    diamond: '<path d="M14 2l4.5 5-4.5 5-4.5-5z" fill="currentColor"/>',
    emptyCircle: '<circle cx="14" cy="7" r="3.5" fill="var(--page)" stroke="currentColor" stroke-width="1.6"/>',
    emptyRect: '<rect x="10.8" y="3.8" width="6.4" height="6.4" fill="var(--page)" stroke="currentColor" stroke-width="1.6"/>',
  };
  const DASHES = { solid: "", dashed: "5 3", dotted: "1.5 2.5" };
  function swatch(spec, series) {
    const drawn =
      spec.shape === "bars"
        ? '<rect x="5" y="2" width="18" height="10" rx="1.5" fill="currentColor"/>'
        : `<path d="M0 7h28" stroke="currentColor" stroke-width="${Math.min(series.style.width, 3)}" ` +
          `stroke-dasharray="${DASHES[series.style.dash]}"/>${SYMBOLS[series.style.symbol]}`;
    return `<svg width="28" height="14" aria-hidden="true" style="color:${ink(series)}">${drawn}</svg>`;
  }

  // Returns the tooltip of a position: the figures of all visible series there, the best first.
  function tip(spec, hidden, position) {
    const rows = [];
    for (const series of spec.series) {
      if (hidden.has(series.name)) continue;
      const point = series.points.find((it) => it.x === position);
      if (point) rows.push([series, point]);
    }
    rows.sort((a, b) => (spec.higher_is_better ? b[1].value - a[1].value : a[1].value - b[1].value));
    const lines = rows.map(([series, { value, interval, remark }]) => {
      const range = interval ? interval.map(digits).join("–") : "";
      const more = remark ? `<br><span class="faint">${escaped(remark)}</span>` : "";
      return (
        `<tr><td>${swatch(spec, series)}</td><td>${escaped(series.name)}${more}</td>` +
        `<td class="number"><b>${digits(value)}</b></td><td class="number faint">${range}</td></tr>`
      );
    });
    const values = `<span class="faint">${escaped(spec.y_axis.name)}</span>`;
    return `<div class="tip"><b>${escaped(positionTitle(spec, position))}</b> ${values}<table>${lines.join("")}</table></div>`;
  }

  function valueAxis(spec) {
    return {
      type: spec.y_axis.scale === "decades" ? "log" : "value",
      max: spec.y_axis.scale === "decades" ? undefined : spec.max,
      min: spec.y_axis.scale === "decades" ? undefined : spec.min,
      axisLabel: { color: colour("--faint"), formatter: tick, hideOverlap: true },
      splitLine: { lineStyle: { color: colour("--grid") } },
      axisLine: { show: false },
      nameTextStyle: { color: colour("--faint") },
    };
  }
  function positionAxis(spec) {
    const common = {
      axisLabel: { color: colour("--faint"), hideOverlap: true },
      axisLine: { lineStyle: { color: colour("--faint") } },
      nameTextStyle: { color: colour("--faint") },
      splitLine: { show: false },
    };
    if (spec.x_axis.scale.named) {
      return { ...common, type: "category", data: spec.x_axis.scale.named.map((_, at) => `${at}`) };
    }
    const positions = spec.series.flatMap((series) => series.points.map((point) => point.x));
    const [min, max] = [Math.min(...positions), Math.max(...positions)];
    if (["bytes", "powers"].includes(spec.x_axis.scale)) {
      // ECharts draws a tick at each power of the base; there is room for about ten.
      const logBase = 2 ** Math.max(1, Math.ceil(Math.log2(max / min) / 9.5));
      return { ...common, type: "log", logBase, min, max };
    }
    // Half a thread is no position.
    return { ...common, type: "value", min, max, minInterval: spec.x_axis.scale === "whole" ? 1 : undefined };
  }

  // Returns the width of the names next to bars.
  const labelWidth = (width) => (width < 520 ? Math.min(150, width * 0.4) : Math.min(380, width * 0.42));

  function option(spec, hidden, width) {
    const narrow = width < 520;
    const lines = spec.shape === "lines";
    const values = valueAxis(spec);
    const positions = positionAxis(spec);
    if (lines && !spec.x_axis.scale.named) {
      Object.assign(positions.axisLabel, { alignMinLabel: "left", alignMaxLabel: "right" });
    }
    positions.axisLabel.formatter = (value) => positionName(spec, Number(value));
    const text = { fontFamily: "system-ui, sans-serif", fontSize: narrow ? 11 : 12.5, color: colour("--ink") };
    const common = {
      animation: false,
      textStyle: text,
      aria: { enabled: true, label: { enabled: false }, decal: { show: !lines } },
      legend: {
        show: false,
        selected: Object.fromEntries(spec.series.map((series) => [series.name, !hidden.has(series.name)])),
      },
      tooltip: {
        trigger: "axis",
        confine: true,
        backgroundColor: colour("--page"),
        borderColor: colour("--grid"),
        textStyle: { color: colour("--ink") },
        axisPointer: { type: lines ? "line" : "shadow", snap: true },
        formatter: (found) => {
          const first = [found].flat().find((it) => it.seriesName !== "");
          if (!first) return "";
          return tip(spec, hidden, spec.x_axis.scale.named ? Number(first.axisValue) : first.value[0]);
        },
      },
    };
    if (!lines) {
      const label = labelWidth(width);
      positions.inverse = true;
      positions.axisLabel = { ...positions.axisLabel, color: colour("--ink"), width: label, overflow: "break", interval: 0, lineHeight: 13,
        fontSize: narrow ? 10.5 : 12 };
      positions.axisTick = { show: false };
      const series = spec.series.map((it) => ({
        name: it.name,
        type: "bar",
        stack: spec.x_axis.name ? undefined : "all",
        barMaxWidth: 18,
        itemStyle: { color: ink(it) },
        // The interval, with the figure at its end.
        markLine: {
          silent: true,
          symbol: "none",
          animation: false,
          lineStyle: { color: colour("--ink"), type: "solid", width: 1.5 },
          label: {
            position: "end",
            color: colour("--ink"),
            fontSize: narrow ? 10.5 : 12,
            formatter: (line) => line.name,
          },
          data: it.points.map(({ x, value, interval }) => {
            const [low, high] = interval ?? [value, value];
            const end = Math.max(high, value);
            // The label needs a line, however short.
            const start = Math.min(low, value, end - Math.abs(end) * 1e-6);
            return [{ name: digits(value), coord: [start, x] }, { coord: [end, x] }];
          }),
        },
        data: it.points.map((point) => [point.value, point.x]),
      }));
      return {
        ...common,
        grid: { left: label + 12, right: 56, top: 8, bottom: 46 },
        xAxis: { ...values, name: spec.y_axis.name, nameLocation: "middle", nameGap: 28 },
        yAxis: positions,
        series,
      };
    }
    const series = spec.series.map((it) => ({
      name: it.name,
      type: "line",
      color: ink(it),
      symbol: it.style.symbol.replace("empty", "").replace(/^./, (letter) => letter.toLowerCase()),
      symbolSize: it.style.width > 3 ? 10 : 8,
      showAllSymbol: true,
      itemStyle: it.style.symbol.startsWith("empty")
        ? { color: colour("--page"), borderColor: ink(it), borderWidth: 1.8 }
        : { color: ink(it) },
      lineStyle: { type: it.style.dash, width: it.style.width, color: ink(it) },
      z: it.kind === "policy" ? 5 : 3,
      emphasis: { focus: "series" },
      data: it.points.map((point) => [point.x, point.value]),
    }));
    series.push({
      name: "",
      type: "line",
      data: [],
      silent: true,
      tooltip: { show: false },
      markLine: {
        silent: true,
        symbol: "none",
        animation: false,
        lineStyle: { color: colour("--faint"), type: [4, 4], width: 1 },
        label: { color: colour("--faint"), formatter: (it) => it.name, position: "end", fontSize: narrow ? 9.5 : 11.5 },
        data: spec.marks.map(([at, name]) => ({ xAxis: at, name: narrow ? name.split(" ")[0] : name })),
      },
    });
    return {
      ...common,
      grid: { left: narrow ? 44 : 56, right: narrow ? 16 : 28, top: 44, bottom: 48 },
      xAxis: { ...positions, name: spec.x_axis.name, nameLocation: "middle", nameGap: 30 },
      yAxis: { ...values, name: spec.y_axis.name, nameTextStyle: { ...values.nameTextStyle, align: "left" }, nameGap: 24 },
      series,
    };
  }

  const all = [];
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const spec = data[Number(figure.dataset.chart)];
    const plot = figure.querySelector(".plot");
    const keys = figure.querySelector(".keys");
    const hidden = new Set(spec.series.filter((it) => !it.shown).map((it) => it.name));
    let chart = null;

    const legend = () => {
      for (const key of keys.querySelectorAll("button[data-series]")) {
        const series = spec.series[Number(key.dataset.series)];
        key.setAttribute("aria-pressed", `${!hidden.has(series.name)}`);
        key.firstElementChild.innerHTML = swatch(spec, series);
      }
    };
    const draw = () => {
      const width = plot.clientWidth;
      if (width === 0) return;
      if (spec.shape === "bars") {
        const names = spec.x_axis.scale.named;
        const each = spec.x_axis.name ? spec.series.length : 1;
        // A name breaks into lines of 13 pixels; a letter is about 6 pixels wide.
        const lines = Math.ceil((Math.max(...names.map((it) => it.length)) * 5.8) / labelWidth(width)) + 1;
        const height = Math.max(each * (width < 520 ? 30 : 26), lines * 13);
        plot.style.height = `${Math.max(140, names.length * height + 64)}px`;
      }
      if (!chart) chart = echarts.init(plot, null, { renderer: "svg" });
      chart.resize();
      chart.setOption(option(spec, hidden, width), true);
      legend();
    };
    const toggle = (names, shown) => {
      for (const name of names) {
        if (shown) hidden.delete(name);
        else hidden.add(name);
      }
      draw();
    };
    spec.series.forEach((series, at) => {
      const key = document.createElement("button");
      key.type = "button";
      key.className = "key";
      key.dataset.series = `${at}`;
      key.title = "Show or hide";
      key.append(document.createElement("span"), document.createTextNode(series.name));
      key.addEventListener("click", () => toggle([series.name], hidden.has(series.name)));
      keys.append(key);
    });
    if (spec.series.some((it) => !it.shown)) {
      const more = document.createElement("button");
      more.type = "button";
      more.textContent = `Show all ${spec.series.length}`;
      more.addEventListener("click", () => toggle(spec.series.map((it) => it.name), true));
      keys.append(more);
    }
    legend();
    new ResizeObserver(draw).observe(plot);
    draw();
    all.push({ draw });

    figure.querySelector("[data-save=csv]")?.addEventListener("click", () => {
      const quoted = (cell) => (/[",\n\r]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : `${cell}`);
      const rows = [[spec.x_axis.name || "candidate", "series", spec.y_axis.name, "interval_low", "interval_high", "remark"]];
      for (const series of spec.series) {
        for (const { x, value, interval, remark } of series.points) {
          const at = spec.x_axis.scale.named ? spec.x_axis.scale.named[x] : x;
          rows.push([at, series.name, value, ...(interval ?? ["", ""]), remark]);
        }
      }
      save(`${spec.name}.csv`, "text/csv", rows.map((row) => row.map(quoted).join(",") + "\r\n").join(""));
    });
    figure.querySelector("[data-save=svg]")?.addEventListener("click", () => {
      draw();
      save(`${spec.name}.svg`, "image/svg+xml", chart.renderToSVGString());
    });
  }

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  for (const button of document.querySelectorAll("button[data-file]")) {
    button.addEventListener("click", () => {
      const text = document.getElementById(button.dataset.file).textContent;
      save(button.dataset.name, "application/json", JSON.parse(text));
    });
  }

  const redraw = () => all.forEach((it) => it.draw());
  darkWanted.addEventListener("change", redraw);
  document.getElementById("theme")?.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    redraw();
  });
  // On paper everything is unfolded.
  let opened = [];
  const print = (on) => {
    if (printing === on && (on ? opened.length : true)) return;
    printing = on;
    if (on) {
      opened = [...document.querySelectorAll("details:not([open])")];
      opened.forEach((it) => (it.open = true));
    } else {
      opened.forEach((it) => (it.open = false));
      opened = [];
    }
    redraw();
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  paper.addEventListener("change", (it) => print(it.matches));
  if (printing) {
    printing = false;
    print(true);
  }
})();
