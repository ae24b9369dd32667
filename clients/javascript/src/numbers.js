/* JSON whose integers have any size: one that a number would round is a BigInt. */

const MAY_BE_LARGE = /[:,[\s-][1-9]\d{15}/;
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;
const isLarge = (token) => /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token));
const newMark = () => `${Math.random().toString(36).slice(2)}-`; // no other text begins with it

export function parse(text) {
  if (!MAY_BE_LARGE.test(text)) return JSON.parse(text);
  const mark = newMark();
  const marked = text.replace(TOKEN, (token) => (isLarge(token) ? `"${mark}${token}"` : token));
  return JSON.parse(marked, (_, value) =>
    typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value,
  );
}

export function stringify(value, indent) {
  const mark = newMark();
  const marked = JSON.stringify(
    value,
    (_, each) => (typeof each === "bigint" ? `${mark}${each}` : each),
    indent,
  );
  return marked?.replaceAll(new RegExp(`"${mark}(-?\\d+)"`, "g"), "$1");
}
