/*
 * The panel with the numbers of the token under the pointer or the cursor.
 *
 * The page is complete without it. Numbers of all tokens are packed in one element and unpacked
 * when the first token is asked for, so that opening the page does not wait for them. A token has
 * no number of its own: its block tells where it begins, and its place among its neighbours the
 * rest.
 */
(() => {
  const tip = document.getElementById("tip");
  let current = null;
  let unpacked = null;

  function bytesOf(text) {
    const characters = atob(text);
    const bytes = new Uint8Array(characters.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
    return bytes.buffer;
  }

  function data() {
    if (unpacked) return unpacked;
    const packed = JSON.parse(document.getElementById("data").textContent);
    unpacked = {
      labels: packed.labels,
      weights: new Uint16Array(bytesOf(packed.weights)),
      logprobs: new Uint16Array(bytesOf(packed.logprobs)),
      tokens: new Int32Array(bytesOf(packed.tokens)),
    };
    return unpacked;
  }

  function element(name, className, text) {
    const result = document.createElement(name);
    result.className = className;
    result.textContent = text;
    return result;
  }

  function fill(token) {
    const { labels, weights, logprobs, tokens } = data();
    const block = token.parentNode;
    const place = Array.prototype.indexOf.call(block.children, token);
    const at = Number(block.dataset.from) + place;
    const position = at - Number(block.parentNode.dataset.from);
    const own = labels.map((_, p) => weights[at * labels.length + p] / 65535);
    const winner = Number(token.className.split(" ")[0].slice(1));
    let entropy = 0;
    for (const weight of own) if (weight > 0) entropy -= weight * Math.log(weight);
    const rows = own.map((weight, p) => {
      const row = element("div", p === winner ? "bar winner" : "bar", "");
      const bar = element("i", `s${p}`, "");
      bar.style.width = `${100 * weight}%`;
      row.append(element("span", "", labels[p]), bar, element("span", "value", weight.toFixed(4)));
      return row;
    });
    const chance = logprobs[at] === 65535
      ? "first token"
      : `probability ${Math.exp(-logprobs[at] / 1000).toPrecision(3)}`;
    // Many streams stand in several columns, or else the last would be below the window.
    const columns = Math.ceil(rows.length / 20);
    const bars = element("div", "bars", "");
    bars.style.columnCount = columns;
    bars.append(...rows);
    tip.style.width = `${20 * columns}rem`;
    tip.replaceChildren(
      element(
        "div",
        "token",
        token.textContent.replaceAll("↵\n", "↵").replaceAll(" ", "␣") || "part of a character",
      ),
      element("div", "", `position ${position}, id ${tokens[at]}, ${chance}`),
      element("div", "", `stream ${labels[winner]} wins, entropy ${entropy.toFixed(4)} nats`),
      bars,
    );
  }

  /** Below the token, or above it where the window ends; never off the side. */
  function placeTip(token) {
    const { left, top, bottom } = token.getClientRects()[0] ?? token.getBoundingClientRect();
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const fits = bottom + 8 + height < innerHeight;
    tip.style.left = `${
      Math.max(8, Math.min(left, document.documentElement.clientWidth - width - 8))
    }px`;
    tip.style.top = `${fits ? bottom + 8 : Math.max(8, top - height - 8)}px`;
  }

  function show(token) {
    if (current) current.classList.remove("current");
    current = token;
    token.classList.add("current");
    fill(token);
    placeTip(token);
  }

  function hide() {
    if (current) current.classList.remove("current");
    current = null;
    tip.hidden = true;
  }

  const tokenOf = (target) => target instanceof Element && target.closest(".tokens > div > span");

  // A page that scrolls under a pointer at rest is no pointing: keys would lose their place.
  let last = "";
  document.addEventListener("pointerover", (event) => {
    const place = `${event.clientX} ${event.clientY}`;
    if (place === last) return;
    last = place;
    const token = tokenOf(event.target);
    if (token) show(token);
    else if (event.pointerType === "mouse" && current && !tip.contains(event.target)) hide();
  });
  document.addEventListener("scroll", () => {
    if (!current) return;
    const { top, bottom } = current.getBoundingClientRect();
    if (bottom < 0 || top > innerHeight) tip.hidden = true;
    else placeTip(current);
  }, { passive: true });

  function neighbour(token, key) {
    const block = token.parentNode;
    if (key === "ArrowRight") {
      return token.nextElementSibling ?? block.nextElementSibling?.firstElementChild;
    }
    if (key === "ArrowLeft") {
      return token.previousElementSibling ?? block.previousElementSibling?.lastElementChild;
    }
    if (key === "Home") return block.parentNode.firstElementChild.firstElementChild;
    if (key === "End") return block.parentNode.lastElementChild.lastElementChild;
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const text = document.activeElement?.closest(".tokens");
    if (!text || event.ctrlKey || event.altKey || event.metaKey) return;
    const inside = current && text.contains(current);
    const next = inside
      ? neighbour(current, event.key)
      : /^(Arrow(Left|Right)|Home|End)$/.test(event.key)
      ? text.firstElementChild.firstElementChild
      : undefined;
    if (!next) return;
    event.preventDefault();
    next.scrollIntoView({ block: "nearest" });
    show(next);
  });
})();
