"""The page of quotas: its files, and the documents that its script asks for every few seconds.

Contract: `/api/overview`, `/api/quotas?text=`, `/api/effective?user=&client_id=` and `/api/changes` answer with JSON
objects, in slices of work, so that a daemon serves its clients in between.
"""

from kafka_quotas.commands.web.asset_files import asset_routes
from kafka_quotas.commands.web.live_quotas import LiveQuotas
from kafka_quotas.commands.web.overview import overview
from kafka_quotas.commands.web.quota_documents import changes_document, effective_document, quotas_document
from kafka_quotas.core.resolution.effective import ANONYMOUS
from kafka_quotas.enforcement.monitoring.http_server import HttpHandler, HttpReply, Query, json_reply
from kafka_quotas.enforcement.telemetry.status import run_sliced


def quota_routes(live: LiveQuotas) -> dict[str, HttpHandler]:
    """Return the paths of the page."""

    async def answer_overview(_: Query) -> HttpReply:
        usage = await live.usage()
        return json_reply(await run_sliced(overview(usage, await live.store())))

    async def answer_quotas(query: Query) -> HttpReply:
        return json_reply(await run_sliced(quotas_document(await live.store(), query.get("text", ""))))

    async def answer_effective(query: Query) -> HttpReply:
        usage = await live.usage()
        user, client_id = query.get("user", "") or ANONYMOUS, query.get("client_id", "")
        return json_reply(effective_document(await live.store(), usage.reading, user=user, client_id=client_id))

    async def answer_changes(_: Query) -> HttpReply:
        return json_reply(changes_document(await live.journal()))

    return {
        **asset_routes("quotas"),
        "/api/overview": answer_overview,
        "/api/quotas": answer_quotas,
        "/api/effective": answer_effective,
        "/api/changes": answer_changes,
    }
