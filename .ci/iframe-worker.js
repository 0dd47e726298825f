// A page that is opened from a folder (file:) may start no Worker, which the search of the site is. This one runs in a
// hidden frame instead: the same messages, the same events. On a server the browser's own Worker stays.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    const inside = this.frame.contentWindow;
    this.heard = (event) => {
      if (event.source !== inside) return;
      const copy = new MessageEvent("message", { data: event.data });
      this.dispatchEvent(copy);
      if (this.onmessage) this.onmessage(copy);
    };
    addEventListener("message", this.heard);
    inside.document.open();
    inside.document.write("<html><body></body></html>");
    inside.document.close();
    inside.postMessage = (message) => parent_post(inside, message);
    inside.importScripts = (...urls) =>
      urls.reduce((done, next) => done.then(() => loaded(inside, next)), Promise.resolve());
    this.ready = loaded(inside, url);
  }

  postMessage(message) {
    this.ready.then(() => {
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data: structuredClone(message) }));
    });
  }

  terminate() {
    removeEventListener("message", this.heard);
    this.frame.remove();
  }
}

function parent_post(inside, message) {
  dispatchEvent(new MessageEvent("message", { data: structuredClone(message), source: inside }));
}

function loaded(inside, url) {
  return new Promise((resolve, reject) => {
    const script = inside.document.createElement("script");
    script.src = url;
    script.onload = resolve;
    script.onerror = reject;
    inside.document.body.appendChild(script);
  });
}

if (location.protocol === "file:") window.Worker = IFrameWorker;
