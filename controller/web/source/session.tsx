// SPDX-License-Identifier: Apache-2.0
// Who is asking, and what this server can do: a page may be newer or older than the service behind it.
import { createContext } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';

import { Trouble } from './parts';
import { ask, chooseNamespace, onSignedOut, Refused, setToken, token } from './rest';

export interface Abilities {
  history: boolean;
  checkpoint: boolean;
}

const NOTHING: Abilities = { history: false, checkpoint: false };
export const AbilitiesContext = createContext<Abilities>(NOTHING);
export const useAbilities = (): Abilities => useContext(AbilitiesContext);

interface OpenApi {
  paths: Record<string, Record<string, { parameters?: { name: string }[] }>>;
}

// As its own description says.
async function readAbilities(): Promise<Abilities> {
  const { paths } = await ask<OpenApi>('/openapi.json');
  return {
    history: (paths['/v1/jobs']?.['get']?.parameters ?? []).some(({ name }) => name === 'include'),
    checkpoint: paths['/v1/namespaces/{namespace}/jobs/{name}:checkpoint'] !== undefined,
  };
}

export interface Session {
  who: string; // empty: nobody yet
  known: boolean; // whether it has been asked
  abilities: Abilities;
  error: unknown;
  signIn(token: string): void;
  signOut(): void;
}

export function useSession(): Session {
  const [turn, setTurn] = useState(0);
  const [state, setState] = useState<{ who: string; known: boolean; abilities: Abilities; error: unknown }>({
    who: '',
    known: false,
    abilities: NOTHING,
    error: null,
  });
  const signIn = (given: string) => {
    setToken(given.trim());
    setTurn((last) => last + 1);
  };
  const signOut = () => {
    setToken('');
    chooseNamespace('');
    setState({ who: '', known: true, abilities: NOTHING, error: null });
  };
  useEffect(
    () =>
      onSignedOut(() => {
        setToken('');
        setState((last) => ({ ...last, who: '', known: true }));
      }),
    [],
  );
  useEffect(() => {
    const begin = async () => {
      if (!token()) return setState((last) => ({ ...last, known: true }));
      try {
        const { name } = await ask<{ name: string }>('/v1/whoami');
        setState({ who: name, known: true, abilities: await readAbilities(), error: null });
      } catch (error) {
        setState({ who: '', known: true, abilities: NOTHING, error });
      }
    };
    void begin();
  }, [turn]);
  return { ...state, signIn, signOut };
}

export function SignIn({ session }: { session: Session }) {
  const [given, setGiven] = useState('');
  const submit = (event: Event) => {
    event.preventDefault();
    session.signIn(given);
  };
  const refused = session.error instanceof Refused;
  return (
    <main class="narrow" tabIndex={-1}>
      <h1>Sign in</h1>
      <p>
        On one machine: run <code>starling up</code> in a terminal and open the link that it prints, or paste the token
        that lies in <code>api.token</code> of Starling’s home. In a cluster: paste the token of a service account, such
        as <code>kubectl create token NAME</code> prints.
      </p>
      <form onSubmit={submit}>
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          spellcheck={false}
          value={given}
          onInput={(event) => setGiven(event.currentTarget.value)}
        />
        <button type="submit" class="primary" disabled={!given.trim()}>
          Sign in
        </button>
      </form>
      {refused ? (
        <p class="wrong" role="alert">
          The server does not know this token.
        </p>
      ) : (
        <Trouble error={session.error} />
      )}
    </main>
  );
}
