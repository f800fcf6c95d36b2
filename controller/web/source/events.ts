// SPDX-License-Identifier: Apache-2.0
// Server-sent events from bytes as they come (the HTML standard's text/event-stream). The browser's
// own EventSource sends no Authorization header, so the page reads streams with fetch.

export interface StreamEvent {
  name: string;
  data: string;
  id: string;
}

// Give it text in whatever pieces; it gives back the events that are whole.
export class EventParser {
  lastId = '';
  retryMs = 3000;
  private rest = '';
  private name = '';
  private data: string[] = [];

  feed(text: string): StreamEvent[] {
    const events: StreamEvent[] = [];
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop() ?? '';
    for (const line of lines) {
      const event = this.take(line.endsWith('\r') ? line.slice(0, -1) : line);
      if (event) events.push(event);
    }
    return events;
  }

  private take(line: string): StreamEvent | null {
    if (line === '') {
      const event = { name: this.name || 'message', data: this.data.join('\n'), id: this.lastId };
      const whole = this.data.length > 0;
      this.name = '';
      this.data = [];
      return whole ? event : null;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.name = value;
    if (field === 'data') this.data.push(value);
    if (field === 'id') this.lastId = value;
    if (field === 'retry' && /^\d+$/.test(value)) this.retryMs = Number(value);
    return null;
  }
}
