"use strict";
/* Commands that a page shows can be copied, with the mouse or the keyboard; nothing is ever run from a page. */
(() => {
  document.documentElement.classList.add("scripted");

  async function copy(button) {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(button.dataset.text);
      tell(button, "Copied");
    } catch { /* not allowed here: it is selected instead, and the keyboard's own copy takes it */
      getSelection().selectAllChildren(code);
      tell(button, "Selected");
    }
  }

  function tell(button, word) {
    button.textContent = word;
    const spoken = document.getElementById("spoken");
    if (spoken) spoken.textContent = `${word}: ${button.dataset.text}`;
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.(".copy");
    if (button) copy(button);
  });
})();
