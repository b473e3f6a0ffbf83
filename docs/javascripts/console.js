// The copy button of a block with prompts copies its commands, without "$ " and without what they print.
function commandsOf(text) {
  const lines = [];
  let continued = false;
  for (const line of text.split("\n")) {
    if (line.startsWith("$ ")) lines.push(line.slice(2));
    else if (continued) lines.push(line);
    else continue;
    continued = line.endsWith("\\");
  }
  return lines.join("\n");
}

function markButtons() {
  for (const button of document.querySelectorAll("[data-clipboard-target]:not([data-clipboard-text])")) {
    const code = document.querySelector(button.dataset.clipboardTarget);
    if (code?.querySelector(".gp")) button.dataset.clipboardText = commandsOf(code.textContent);
  }
}

markButtons();
new MutationObserver(markButtons).observe(document.body, { childList: true, subtree: true });
