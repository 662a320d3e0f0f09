-- What a key was made for: the prefix that its owner holds is not hashed. Empty for one from before, until the store is served: then it
-- is of the environment that it is served in.
ALTER TABLE api_keys ADD COLUMN environment TEXT NOT NULL DEFAULT '';
