/*
 * Keeps the page of an unfinished run up to date. Without this script the page is as it was when it was
 * opened. What somebody has unfolded stays unfolded, and where they are on the page stays there: only what
 * has changed is replaced, and nothing is taken away.
 */
"use strict";
{
    const EVERY = 2000;
    const HIDDEN = 15000;
    const MOST = 60000;
    const BLOCKS = ["anvil-standing", "anvil-controls", "anvil-time", "anvil-window-above", "anvil-window-below"];

    const root = document.getElementById("anvil-run");
    const told = document.getElementById("anvil-told");
    const hint = document.getElementById("anvil-live");
    const usual = hint?.textContent;
    /** What each part looked like when it came from the server, before anybody touched it. */
    const sources = new Map();
    let timer = null;
    let asking = false;
    let failures = 0;

    const parts = (where) => [...BLOCKS.map((id) => where.querySelector("#" + id)), ...where.querySelectorAll("[data-part]")]
        .filter((part) => part !== null);
    // The token of a form is another one each time.
    const source = (part) => part.dataset.same ?? part.outerHTML;
    const standing = () => document.getElementById("anvil-standing");
    const finished = () => "finished" in standing().dataset;

    const keyOf = (element, inside) => {
        if (!inside.contains(element)) {
            return null;
        }
        const same = [...inside.querySelectorAll(element.tagName)];
        return {tag: element.tagName, at: same.indexOf(element), text: element.textContent};
    };

    const replace = (old, part) => {
        const open = new Set([...old.querySelectorAll("details[open]")].map((details) => details.dataset.key));
        const focused = keyOf(document.activeElement, old);
        const scrolled = [...old.querySelectorAll(".anvil-scroll")].map((box) => box.scrollTop);
        for (const details of part.querySelectorAll("details")) {
            details.open = open.has(details.dataset.key);
        }
        old.replaceWith(part);
        part.querySelectorAll(".anvil-scroll").forEach((box, at) => {
            box.scrollTop = scrolled[at] ?? 0;
        });
        if (focused !== null) {
            part.querySelectorAll(focused.tag)[focused.at]?.focus({preventScroll: true});
        }
    };

    const merge = (page) => {
        let before = null;
        for (const part of parts(page)) {
            const now = source(part);
            const old = document.getElementById(part.id);
            const isNew = old === null;
            const moved = document.importNode(part, true);
            if (isNew) {
                const turns = document.getElementById("anvil-turns");
                if (before === null) {
                    turns.append(moved);
                } else {
                    before.after(moved);
                }
            } else if (sources.get(part.id) !== now) {
                replace(old, moved);
            }
            sources.set(part.id, now);
            if ("part" in part.dataset) {
                before = document.getElementById(part.id);
            }
        }
        if (page.querySelector("#anvil-nothing") === null) {
            document.getElementById("anvil-nothing")?.remove();
        }
    };

    const ask = async () => {
        const url = new URL(root.dataset.liveUrl, document.baseURI);
        url.search = window.location.search;
        url.searchParams.set("mark", standing().dataset.mark);
        const response = await fetch(url, {headers: {"X-Requested-With": "XMLHttpRequest"}, redirect: "error"});
        if (response.status === 204) {
            return;
        }
        if (!response.ok) {
            throw new Error(String(response.status));
        }
        const before = standing().dataset.said;
        merge(new DOMParser().parseFromString(await response.text(), "text/html"));
        if (standing().dataset.said !== before) {
            told.textContent = standing().dataset.said;
        }
    };

    const next = () => {
        clearTimeout(timer);
        hint.hidden = finished();
        hint.textContent = failures > 1 ? hint.dataset.broken : usual;
        if (!finished()) {
            const wait = document.hidden ? HIDDEN : EVERY;
            timer = setTimeout(tick, Math.min(wait * 2 ** failures, MOST));
        }
    };

    const tick = async () => {
        if (asking) {
            return;
        }
        asking = true;
        try {
            await ask();
            failures = 0;
        } catch {
            // Logged out, a deploy, no network: asked again, ever less often.
            failures = Math.min(failures + 1, 5);
        } finally {
            asking = false;
            next();
        }
    };

    if (root !== null && !finished()) {
        parts(document).forEach((part) => sources.set(part.id, source(part)));
        document.addEventListener("visibilitychange", () => {
            if (!document.hidden && !finished()) {
                clearTimeout(timer);
                tick();
            }
        });
        next();
    }
}
