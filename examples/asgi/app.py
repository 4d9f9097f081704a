"""A FastAPI application that accepts orders without blocking its event loop.

uvicorn --workers 2 app:app
"""

import os
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request

from shmaccum import AsyncProducer
from shmaccum.errors import ShmaccumError

SETTINGS = os.environ.get("PRODUCER_PROPERTIES", "../producer.properties")


@asynccontextmanager
async def lifespan(app):
    """Start the producer with the worker; at its end, wait for acknowledgements."""
    async with AsyncProducer.from_file(SETTINGS) as app.state.producer:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order}", status_code=202)
async def accept(order: str, request: Request) -> dict[str, object]:
    """Answer when the record is in shared memory; with send_and_wait, when Kafka has it."""
    try:
        await app.state.producer.send("orders", await request.body(), key=order)
    except ShmaccumError as error:  # not accepted: the slab is full, or the topic unknown; the client can try again
        raise HTTPException(503, str(error)) from error
    return {"accepted by": os.getpid()}
