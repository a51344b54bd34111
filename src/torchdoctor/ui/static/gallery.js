"use strict";
/* The gallery: asks for what is new while something trains; a card is renewed only where it has changed. */
(() => {
  const form = document.getElementById("gallery");
  const bar = document.getElementById("bar");
  const trouble = document.getElementById("trouble");
  const spoken = document.getElementById("spoken");
  const PAUSE = 300; /* milliseconds from one question to the next */
  const held = new Map();
  let stamp = "";
  let timer = 0;

  function say(text) {
    trouble.textContent = text;
    trouble.hidden = !text;
  }

  /* What has the keyboard's focus keeps it, though it was made anew. */
  function renew(place, html) {
    if (held.get(place) === html) return false;
    held.set(place, html);
    const focused = place.contains(document.activeElement) ? document.activeElement : null;
    place.innerHTML = html; /* made and escaped by our own server */
    if (focused) (place.querySelector(`${focused.tagName}[value="${CSS.escape(focused.value ?? "")}"]`) ?? place.querySelector("a, button"))?.focus({ preventScroll: true });
    return true;
  }

  function show(found) {
    for (const [name, html] of Object.entries(found.cards)) {
      const card = form.querySelector(`.exhibit[data-name="${CSS.escape(name)}"]`);
      const had = Boolean(card.querySelector(".frame svg"));
      if (!renew(card, html)) continue;
      const frame = card.querySelector(".frame");
      if (!had && stamp && frame.querySelector("svg")) frame.classList.add("fresh");
      const badge = card.querySelector(".foot:not(.waiting) .badge");
      if (badge && stamp) spoken.textContent = `${card.querySelector("h2").textContent}: ${badge.textContent}`;
    }
    renew(bar, found.tools);
  }

  async function ask() {
    clearTimeout(timer);
    let pause = PAUSE;
    try {
      const answer = await fetch(`/api/lab/curves?since=${stamp}`);
      if (!answer.ok) throw new Error(await answer.text());
      const found = await answer.json();
      if (found.cards) show(found);
      stamp = found.stamp;
      if (!found.busy) return;
    } catch (error) {
      say(error instanceof TypeError ? "The server does not answer; asking again." : error.message);
      pause = 5000;
    }
    timer = setTimeout(ask, pause);
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const pressed = event.submitter;
    const target = pressed.getAttribute("formaction") ?? form.action;
    if (pressed.value === "all" && target.endsWith("/remove") && !window.confirm("Remove all trainings of the gallery? They can be trained again.")) return;
    const fields = new URLSearchParams(new FormData(form, pressed));
    pressed.disabled = true;
    try {
      const answer = await fetch(target, { method: "POST", body: fields, redirect: "manual" });
      say(answer.type === "opaqueredirect" || answer.ok ? "" : await answer.text());
    } catch {
      say("The server does not answer.");
    }
    pressed.disabled = false;
    ask();
  });
  ask();
})();
