"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const [log, form, input, model, speed, legend] = [
    "log",
    "form",
    "input",
    "model",
    "speed",
    "legend",
  ]
    .map(at);
  /** The conversation; a switch of the model keeps it. */
  const messages = [];
  let running;

  const headers = () => {
    const key = at("key").value;
    return key === "" ? {} : { authorization: `Bearer ${key}` };
  };
  /** Names of streams, as in every output. */
  const labelOf = (p, streams) => streams <= 26 ? String.fromCharCode(65 + p) : String(p + 1);

  function addMessage(role, text) {
    const element = document.createElement("div");
    element.className = role === "assistant" ? "message assistant tokens" : `message ${role}`;
    const name = document.createElement("b");
    name.textContent = role === "assistant" ? model.value : role;
    element.append(name, text);
    log.append(element);
    log.scrollTop = log.scrollHeight;
    return element;
  }

  /** Letters and colours of the streams, with the weights of one token. */
  function showLegend(streams, weights) {
    legend.hidden = streams < 2;
    legend.replaceChildren(
      ...Array.from({ length: streams }, (_, p) => {
        const entry = document.createElement("li"), name = document.createElement("b");
        name.className = `s${p % 8}`;
        name.textContent = labelOf(p, streams);
        entry.append(name, weights ? ` ${weights[p].toFixed(4)}` : "");
        return entry;
      }),
    );
  }

  const showModel = () => showLegend(Number(model.selectedOptions[0].dataset.legend));

  /** Text of one step over the letter of the stream that weighs most, in its colour. */
  function addToken(target, text, tokens, streams) {
    if (text === "") return;
    const weights = tokens.at(-1)?.weights;
    if (!weights || streams < 2) return target.append(text);
    const most = Math.max(...weights), winner = weights.indexOf(most);
    const strength = Math.round(9 * Math.max(0, (most * streams - 1) / (streams - 1)));
    const token = document.createElement("span");
    const width = [...text.replace(/\n+$/, "")].length === 1 ? " narrow" : "";
    token.className = `s${winner % 8} w${strength}${width}`;
    token.tabIndex = 0;
    token.dataset.stream = labelOf(winner, streams);
    token.setAttribute("aria-label", `${text}, stream ${token.dataset.stream}`);
    token.append(text);
    token.addEventListener("mouseenter", () => showLegend(streams, weights));
    token.addEventListener("focus", () => showLegend(streams, weights));
    target.append(token);
  }

  async function* frames(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
        const frame = text.slice(0, end);
        if (frame.startsWith("data: ") && frame !== "data: [DONE]") {
          yield JSON.parse(frame.slice(6));
        }
      }
    }
  }

  async function ask() {
    const element = addMessage("assistant", "");
    running = new AbortController();
    at("send").disabled = true;
    at("stop").disabled = false;
    let answer = "", count = 0, began = 0;
    try {
      const response = await fetch("/v1/chat/completions", {
        method: "POST",
        headers: { "content-type": "application/json", ...headers() },
        signal: running.signal,
        body: JSON.stringify({
          model: model.value,
          messages,
          stream: true,
          temperature: Number(at("temperature").value),
          max_tokens: Number(at("tokens").value),
          parscale: { weights: model.selectedOptions[0].dataset.weights === "true" },
        }),
      });
      if (!response.ok) throw new Error((await response.json()).error.message);
      for await (const frame of frames(response)) {
        if (frame.error) throw new Error(frame.error.message);
        const [choice] = frame.choices;
        if (!choice) continue;
        const text = choice.delta.content ?? "";
        const tokens = choice.parscale?.tokens ?? [];
        answer += text;
        addToken(element, text, tokens, choice.parscale?.streams ?? 1);
        log.scrollTop = log.scrollHeight;
        if (text === "") continue;
        if (count++ === 0) began = performance.now();
        else {
          const rate = (count - 1) / (performance.now() - began) * 1000;
          speed.textContent = `${rate.toFixed(1)} tok/s`;
        }
      }
    } catch (error) {
      if (error.name !== "AbortError") addMessage("error", error.message);
    }
    messages.push({ role: "assistant", content: answer });
    running = undefined;
    at("send").disabled = false;
    at("stop").disabled = true;
    input.focus();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (text === "" || running) return;
    input.value = "";
    messages.push({ role: "user", content: text });
    addMessage("user", text);
    ask();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  at("stop").addEventListener("click", () => running?.abort());
  addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
  at("clear").addEventListener("click", () => {
    running?.abort();
    messages.length = 0;
    log.replaceChildren();
    showModel();
  });

  /** Lists the models; asks for a key where the server wants one, and again while it loads. */
  async function list() {
    const response = await fetch("/v1/models", { headers: headers() });
    if (response.status === 401) at("key-label").hidden = false;
    if (response.status === 503) setTimeout(list, 1000);
    if (!response.ok) return;
    const { data } = await response.json();
    model.replaceChildren(...data.map(({ id, parscale }) => {
      const option = document.createElement("option");
      option.value = id;
      option.textContent = `${id} (P = ${parscale.streams})`;
      option.dataset.weights = String(parscale.weights);
      option.dataset.legend = parscale.weights ? parscale.streams : 1;
      return option;
    }));
    showModel();
  }
  at("key").addEventListener("change", list);
  model.addEventListener("change", showModel);
  list();
})();
