"use strict";
/* The gallery: asks for what is new while something trains; a card is renewed only where it has changed. */
(() => {
  const form = document.getElementById("gallery");
  const bar = document.getElementById("bar");
  const spoken = document.getElementById("spoken");
  const held = new Map();

  /* What has the keyboard's focus keeps it, though it was made anew. */
  function renew(place, html) {
    if (held.get(place) === html) return false;
    held.set(place, html);
    const focused = place.contains(document.activeElement) ? document.activeElement : null;
    place.innerHTML = html; /* made and escaped by our own server */
    if (focused) (place.querySelector(`${focused.tagName}[value="${CSS.escape(focused.value ?? "")}"]`) ?? place.querySelector("a, button"))?.focus({ preventScroll: true });
    return true;
  }

  function show(found, isFirst) {
    for (const [name, html] of Object.entries(found.cards)) {
      const card = form.querySelector(`.exhibit[data-name="${CSS.escape(name)}"]`);
      const had = Boolean(card.querySelector(".frame svg"));
      if (!renew(card, html)) continue;
      const frame = card.querySelector(".frame");
      if (!had && !isFirst && frame.querySelector("svg")) frame.classList.add("fresh");
      const badge = card.querySelector(".foot:not(.waiting) .badge");
      if (badge && !isFirst) spoken.textContent = `${card.querySelector("h2").textContent}: ${badge.textContent}`;
    }
    renew(bar, found.tools);
  }

  follow(form, (stamp) => `/api/lab/curves?since=${stamp}`, show)();
})();
