export default (payload) => ({ name: payload.name.toUpperCase(), total: payload.items.reduce((a, b) => a + b, 0) });
