// Logging in: posts the text after the # of a login link, once, and removes it from the address.
const form = document.getElementById("login");
const root = form.dataset.root;
const wrong = document.getElementById("wrong");
// The pages of this browser, as in live.js: all of them may have been logged out by a restart.
const pages = new BroadcastChannel("ostler" + location.host);

function goOn() {
  // The place on a page, such as #e12, is not sent to the server.
  location.replace(root + form.elements.to.value + location.hash);
}

async function logIn(token) {
  const answer = await fetch(root + "login", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (answer.ok) {
    pages.postMessage("login");
    goOn();
  } else {
    wrong.textContent = "This login link was used, or is too old. Make another one: ostler open";
  }
}

pages.addEventListener("message", ({ data }) => data === "login" && goOn());

const text = location.hash.slice(1);
// An address such as tasks/ID#e12 has a fragment too, which is no token.
if (text.length > 20) {
  history.replaceState(null, "", location.pathname + location.search);
  logIn(text).catch(() => {
    wrong.textContent = "The node does not answer.";
  });
}
