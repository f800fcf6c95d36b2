// SPDX-License-Identifier: Apache-2.0
// Where in the page one is: all of it stands in the address, so that it can be sent to somebody, opened
// again, and left with the browser's back button.
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';

export interface Place {
  job: string; // namespace/name; empty: the list
  uid: string; // of a past job: several may have had its name
  tab: string;
  view: string; // live | history | new
  find: string;
  pod: string; // whose log
}

export function readPlace(search: string): Place {
  const query = new URLSearchParams(search);
  const get = (name: string) => query.get(name) ?? '';
  return { job: get('job'), uid: get('uid'), tab: get('tab'), view: get('view'), find: get('find'), pod: get('pod') };
}

export function writePlace(place: Partial<Place>): string {
  const query = new URLSearchParams();
  for (const name of ['view', 'job', 'uid', 'tab', 'find', 'pod'] as const) {
    const value = place[name];
    if (value) query.set(name, value);
  }
  // Slashes read better as they are, and may stand in a query.
  const text = query.toString().replaceAll('%2F', '/');
  return text ? `/?${text}` : '/';
}

export interface Navigation {
  place: Place;
  go(place: Partial<Place>, options?: { replace?: boolean }): void;
}

export const NavigationContext = createContext<Navigation>({ place: readPlace(''), go: () => {} });
export const useNavigation = (): Navigation => useContext(NavigationContext);
