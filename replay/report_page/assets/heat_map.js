const HOLDER_TONES = 10;
const FIRST_HOLDER = 4;
const OTHERS = 65535;
const CELL_TONES = ["--free", "--cached-idle", "--quarantined", "--bad"];
const CELL_NAMES = ["free", "cached, no row uses it", "quarantined", "PRIVATE, and in no row's table"];

function bytesOf(packed) {
  const letters = atob(packed);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
  return bytes;
}

const toneOf = (cell) => (cell < FIRST_HOLDER ? CELL_TONES[cell] : `--h${(cell - FIRST_HOLDER) % HOLDER_TONES}`);

function holderOf(cell) {
  if (cell < FIRST_HOLDER) return CELL_NAMES[cell];
  if (cell === OTHERS) return "a holder whose name is left out";
  return content.holders[cell - FIRST_HOLDER] || "a holder whose name is left out";
}

/** Red, green, blue of each cell's tone under the present colour scheme. */
function palette(cells) {
  const style = getComputedStyle(document.documentElement);
  const known = new Map();
  for (const cell of new Set(cells)) {
    const hex = style.getPropertyValue(toneOf(cell)).trim();
    known.set(cell, [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  }
  return known;
}

function heatMap(host, map) {
  const raw = bytesOf(map.cells);
  const cells = new Uint16Array(raw.length / 2);
  cells.forEach((_, place) => { cells[place] = raw[2 * place] | (raw[2 * place + 1] << 8); });
  const shares = bytesOf(map.shares);
  const picture = element("canvas", { width: map.columns, height: map.bands });
  let [canvas, chosen, colors] = [null, null, palette(cells)];
  const paint = () => {
    paintCells(picture, map, cells, shares, colors, chosen);
    if (!canvas) return;
    const brush = canvas.getContext("2d");
    brush.imageSmoothingEnabled = false;
    brush.clearRect(0, 0, canvas.width, canvas.height);
    brush.drawImage(picture, 0, 0, Math.round((canvas.width * map.columns) / axis.columns), canvas.height);
  };
  const choose = (cell) => {
    if (cell === chosen) return;
    chosen = cell;
    paint();
  };
  const cellAt = (border, y) => {
    const { frame } = host;
    const inside = y - host.getBoundingClientRect().top - frame.top;
    const band = Math.floor((inside / (frame.bottom - frame.top)) * map.bands);
    return { band: Math.min(Math.max(band, 0), map.bands - 1), column: Math.min(Math.max(border, 1), map.columns) - 1 };
  };
  plot(host, {
    name: "Who holds which page over time", columns: true, top: 26, left: margin, legend: mapLegend(cells),
    height: (width) => (width < 520 ? 300 : 380),
    paint: (frame) => {
      canvas = layCanvas(frame);
      paintPageScale(frame, map);
      paint();
    },
    at: (border, y) => {
      const { band, column } = cellAt(border, y);
      const cell = cells[band * map.columns + column];
      choose(cell >= FIRST_HOLDER && cell !== OTHERS ? cell : null);
    },
    leave: () => choose(null),
    rows: (border, y) => {
      const { band, column } = cellAt(border, y);
      const place = band * map.columns + column;
      const low = band * map.pages_per_band;
      const high = Math.min(low + map.pages_per_band, map.num_pages) - 1;
      return [[`var(${toneOf(cells[place])})`, holderOf(cells[place]), `${Math.round((100 * shares[place]) / 255)} %`], [null, low === high ? `page ${count(low)}` : `pages ${count(low)} to ${count(high)}`, ""]];
    },
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colors = palette(cells); paint(); });
}

function mapLegend(cells) {
  const present = new Set(cells);
  const states = [0, 1, 2, 3].filter((cell) => cell < 2 || present.has(cell)).map((cell) => [`var(${CELL_TONES[cell]})`, CELL_NAMES[cell]]);
  const tones = [...Array(HOLDER_TONES).keys()].map((tone) => `var(--h${tone})`);
  return [[tones, "held: a colour for each holder (ten, used again)"], ...states];
}

/** The pixels: dimmed where another holder is chosen, paler where the main holder has less. */
function paintCells(picture, map, cells, shares, colors, chosen) {
  const brush = picture.getContext("2d");
  const image = brush.createImageData(map.columns, map.bands);
  for (let place = 0; place < cells.length; place += 1) {
    const [red, green, blue] = colors.get(cells[place]);
    const strength = cells[place] < FIRST_HOLDER ? 255 : 110 + (145 * shares[place]) / 255;
    image.data.set([red, green, blue, chosen === null || cells[place] === chosen ? strength : 56], 4 * place);
  }
  brush.putImageData(image, 0, 0);
}

function layCanvas(frame) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [frame.right - frame.left, frame.bottom - frame.top];
  const canvas = element("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  canvas.style.cssText = `left:${frame.left}px;top:${frame.top}px;width:${width}px;height:${height}px`;
  frame.host.prepend(canvas);
  frame.svg.style.position = "relative";
  return canvas;
}

function paintPageScale(frame, map) {
  const { svg, left, top, bottom } = frame;
  for (const page of ticks(0, map.num_pages, 5, true)) {
    const y = top + ((bottom - top) * page) / (map.bands * map.pages_per_band);
    svg.append(draw("text", { x: left - 8, y: y + (page ? 4 : 9), "text-anchor": "end" }, short(page)));
  }
  svg.append(draw("text", { class: "unit", x: 0, y: top - 9 }, "page"));
}
