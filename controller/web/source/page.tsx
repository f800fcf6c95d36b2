// SPDX-License-Identifier: Apache-2.0
// The page's root: where one is, who one is, and the view that belongs to it.
import { render } from 'preact';
import { useCallback, useEffect, useMemo, useState } from 'preact/hooks';

import { JobsView } from './jobs_view';
import { JobView } from './job_view';
import { Go } from './parts';
import { NavigationContext, type Place, readPlace, writePlace } from './place';
import { takeTokenFromAddress } from './rest';
import { AbilitiesContext, SignIn, useSession } from './session';
import { SubmitView } from './submit';
import { apply, type Choice, choose, chosen } from './theme';

function usePlace() {
  const [place, setPlace] = useState<Place>(readPlace(location.search));
  useEffect(() => {
    const back = () => setPlace(readPlace(location.search));
    window.addEventListener('popstate', back);
    return () => window.removeEventListener('popstate', back);
  }, []);
  const go = useCallback((next: Partial<Place>, options: { replace?: boolean } = {}) => {
    const address = writePlace(next);
    if (options.replace) history.replaceState(null, '', address);
    else history.pushState(null, '', address);
    setPlace(readPlace(location.search));
    if (options.replace) return;
    window.scrollTo(0, 0);
    // A screen reader hears where it is now, as it would of another document.
    requestAnimationFrame(() => document.querySelector<HTMLElement>('main')?.focus());
  }, []);
  return useMemo(() => ({ place, go }), [place, go]);
}

function Theme() {
  const [choice, setChoice] = useState<Choice>(chosen());
  const change = (value: string) => {
    choose(value as Choice);
    setChoice(chosen());
  };
  return (
    <select aria-label="Colours" value={choice} onChange={(event) => change(event.currentTarget.value)}>
      <option value="system">System</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  );
}

function View({ place }: { place: Place }) {
  if (place.view === 'new') return <SubmitView />;
  const [ns = '', name = ''] = place.job.split('/');
  if (ns && name) return <JobView key={place.job + place.uid} ns={ns} name={name} />;
  return <JobsView />;
}

function App() {
  const navigation = usePlace();
  const session = useSession();
  const signedIn = session.who !== '';
  return (
    <NavigationContext.Provider value={navigation}>
      <AbilitiesContext.Provider value={session.abilities}>
        <header class="top">
          <Go to={{}} class="brand">
            <img src="/icon.svg" alt="" width="26" height="26" /> Starling
          </Go>
          {signedIn && (
            <Go to={{ view: 'new' }} class="button primary">
              New job
            </Go>
          )}
          <Theme />
          {signedIn && (
            <button type="button" class="plain" onClick={session.signOut}>
              Sign out<span class="unseen">, {session.who}</span>
            </button>
          )}
        </header>
        {signedIn ? (
          <View place={navigation.place} />
        ) : session.known ? (
          <SignIn session={session} />
        ) : (
          <main tabIndex={-1} aria-busy="true">
            <p class="empty">One moment.</p>
          </main>
        )}
      </AbilitiesContext.Provider>
    </NavigationContext.Provider>
  );
}

apply();
takeTokenFromAddress();
const root = document.getElementById('root');
if (root) render(<App />, root);
