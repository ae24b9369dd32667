// Drawing on a canvas: a sparkline, and a map of areas. Colours come from the style sheet.

const LABEL_PX = 12;

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// A context scaled to the canvas as it is shown; everything below is in CSS pixels.
function prepared(canvas) {
  const scale = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// *values* from old to new as one line, filled below.
export function sparkline(canvas, values) {
  const { context, width, height } = prepared(canvas);
  const top = Math.max(1, ...values);
  const x = (at) => (at / Math.max(1, values.length - 1)) * width;
  const y = (value) => height - 2 - (value / top) * (height - 6);
  context.beginPath();
  values.forEach((value, at) => context.lineTo(x(at), y(value)));
  context.strokeStyle = colour("accent");
  context.lineWidth = 2;
  context.lineJoin = "round";
  context.stroke();
  context.lineTo(width, height);
  context.lineTo(0, height);
  context.globalAlpha = 0.15;
  context.fillStyle = colour("accent");
  context.fill();
  context.globalAlpha = 1;
}

// Rectangles for *items* ({count}, largest first) that fill the area, as square as they can be.
//
// Squarified treemap: items are laid in rows along the shorter side; a row takes the next item
// as long as that makes its worst rectangle squarer.
export function squarify(items, area) {
  const total = items.reduce((sum, item) => sum + item.count, 0);
  const placed = [];
  let { x, y, width, height } = area;
  let scale = total ? (width * height) / total : 0;
  let at = 0;
  while (at < items.length && width > 0 && height > 0) {
    const side = Math.min(width, height);
    let end = at + 1;
    let sum = items[at].count;
    while (end < items.length) {
      const grown = sum + items[end].count;
      if (worst(items, at, end + 1, grown, side, scale) > worst(items, at, end, sum, side, scale)) break;
      sum = grown;
      end += 1;
    }
    const depth = (sum * scale) / side;
    let along = 0;
    for (; at < end; at += 1) {
      const length = (items[at].count * scale) / depth;
      placed.push(
        width >= height
          ? { item: items[at], x, y: y + along, width: depth, height: length }
          : { item: items[at], x: x + along, y, width: length, height: depth },
      );
      along += length;
    }
    if (width >= height) [x, width] = [x + depth, width - depth];
    else [y, height] = [y + depth, height - depth];
  }
  return placed;
}

function worst(items, from, to, sum, side, scale) {
  const depth = (sum * scale) / side;
  const ratio = (count) => {
    const length = (count * scale) / depth;
    return Math.max(length / depth, depth / length);
  };
  return Math.max(ratio(items[from].count), ratio(items[to - 1].count)); // largest and smallest
}

export const GLOW_MS = 1500; // how long a changed area glows

// Return how strongly an area glows that stops in *leftMs*: it fades, or if the person prefers less
// motion (*isCalm*) it does not change until it stops.
export function glow(leftMs, isCalm) {
  if (leftMs <= 0) return 0;
  return isCalm ? 0.5 : (leftMs / GLOW_MS) * 0.85;
}

// Draw *groups*; *heat(name)* says {kind, share} of one that changed just now. Its rectangles.
export function treemap(canvas, groups, heat) {
  const { context, width, height } = prepared(canvas);
  const placed = squarify(groups, { x: 0, y: 0, width, height });
  context.font = `${LABEL_PX}px system-ui, sans-serif`;
  context.textBaseline = "top";
  for (const { item, ...box } of placed) {
    area(context, box, hue(item.type), 1);
    const warm = heat(item.name);
    if (warm) area(context, box, colour(warm.kind), warm.share);
    label(context, item, box);
  }
  return placed;
}

function area(context, box, fill, alpha) {
  context.globalAlpha = alpha;
  context.fillStyle = fill;
  context.beginPath();
  context.roundRect(box.x + 1, box.y + 1, Math.max(0, box.width - 2), Math.max(0, box.height - 2), 4);
  context.fill();
  context.globalAlpha = 1;
}

function label(context, item, box) {
  if (box.width < 44 || box.height < LABEL_PX + 10) return;
  context.save();
  context.beginPath();
  context.rect(box.x + 2, box.y + 2, box.width - 8, box.height - 4);
  context.clip();
  context.fillStyle = colour("map-text");
  context.fillText(item.folder.endsWith("/") ? item.folder : item.type, box.x + 8, box.y + 7);
  if (box.height > 2 * LABEL_PX + 16) {
    context.globalAlpha = 0.75;
    const count = `${item.count.toLocaleString()} ${item.type}`;
    context.fillText(count, box.x + 8, box.y + 10 + LABEL_PX);
  }
  context.restore();
}

// A colour of its own for each type, the same whenever the page is opened.
function hue(type) {
  let hash = 0;
  for (const letter of type) hash = (hash * 31 + letter.codePointAt(0)) % 360;
  return `hsl(${(hash + 330) % 360} ${colour("map-saturation")} ${colour("map-lightness")})`;
}
